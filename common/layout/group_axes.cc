// All but the tied group are cuts of the mesh; that one takes both ends of a pipeline.
#include "common/layout/group_axes.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace mt::layout {
namespace {

constexpr std::array<std::string_view, kNumGroupUses> kUseNames = {
    "world",      "checkpoint", "control",   "tp",   "tp-copies",
    "tp-control", "dp-reduce",  "dp-gather", "tied", "decode"};

AxisSet AxesOf(GroupUse use) {
  switch (use) {
    case GroupUse::kWorld:
    case GroupUse::kCheckpoint:
    case GroupUse::kControl:
      break;
    case GroupUse::kTensor:
    case GroupUse::kTensorCopies:
    case GroupUse::kTensorControl:
      return kTensorAxes;
    case GroupUse::kGradients:
    case GroupUse::kWeights:
      return kGradientAxes;
    case GroupUse::kTied:
      return kStageAxes;
    case GroupUse::kDecode:
      return kNetworkAxes;
  }
  return kWorldAxes;
}

}  // namespace

std::string_view Name(GroupUse use) { return kUseNames[static_cast<size_t>(use)]; }

GroupAxes::GroupAxes(const Mesh& mesh, int world_rank, bool tied_tables)
    : mesh_(mesh),
      world_rank_(world_rank),
      at_(mesh.CoordinatesOf(world_rank)),
      tied_tables_(tied_tables) {}

bool GroupAxes::holds_tied_table() const {
  const int last = SizeOf(kStageAxes) - 1;
  const int stage = IndexIn(kStageAxes);
  return tied_tables_ && last > 0 && (stage == 0 || stage == last);
}

Group GroupAxes::MembersOf(GroupUse use) const {
  Group members = mesh_.GroupOf(world_rank_, AxesOf(use));
  if (use != GroupUse::kTied) return members;
  return holds_tied_table() ? Group{members.front(), members.back()} : Group{};
}

std::optional<GroupPlace> GroupAxes::PlaceIn(GroupUse use) const {
  GroupPlace place{.name = {}, .members = MembersOf(use)};
  if (place.members.size() < 2) return std::nullopt;
  place.name = fmt::format("{}/{}", Name(use), place.members.front());
  place.index =
      static_cast<int>(std::ranges::find(place.members, world_rank_) - place.members.begin());
  return place;
}

}  // namespace mt::layout
