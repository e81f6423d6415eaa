#include "daemon/scheduler/placement.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

namespace mt::daemon {
namespace {

int64_t NumFree(const NodeOffer& offer) { return static_cast<int64_t>(offer.free_slots.size()); }

}  // namespace

std::vector<PlacedRank> Place(std::vector<NodeOffer> offers, int64_t num_ranks) {
  int64_t free = 0;
  for (const NodeOffer& offer : offers) free += NumFree(offer);
  if (num_ranks <= 0 || free < num_ranks) return {};
  // Most free slots first.
  std::ranges::sort(offers, [](const NodeOffer& a, const NodeOffer& b) {
    return std::make_tuple(-NumFree(a), a.node) < std::make_tuple(-NumFree(b), b.node);
  });
  std::vector<PlacedRank> placed;
  placed.reserve(static_cast<size_t>(num_ranks));
  const auto take = [&placed, num_ranks](const NodeOffer& offer) {
    for (const int slot : offer.free_slots) {
      if (static_cast<int64_t>(placed.size()) == num_ranks) return;
      placed.push_back({static_cast<int>(placed.size()), offer.node, slot});
    }
  };
  for (size_t i = 0; i < offers.size(); ++i) {
    const int64_t rest = num_ranks - static_cast<int64_t>(placed.size());
    if (NumFree(offers[i]) < rest) {
      take(offers[i]);
      continue;
    }
    // The rest fits one node: the tightest that holds it, and of equals the first by name.
    const auto end = std::find_if(offers.begin() + static_cast<std::ptrdiff_t>(i), offers.end(),
                                  [rest](const NodeOffer& offer) { return NumFree(offer) < rest; });
    const int64_t tightest = NumFree(*(end - 1));
    take(*std::find_if(offers.begin() + static_cast<std::ptrdiff_t>(i), end,
                       [tightest](const NodeOffer& offer) { return NumFree(offer) == tightest; }));
    break;
  }
  return placed;
}

void SortQueue(std::vector<WaitingJob>* jobs) {
  std::ranges::sort(*jobs, [](const WaitingJob& a, const WaitingJob& b) {
    return std::tie(b.priority, a.created_us, a.uid) < std::tie(a.priority, b.created_us, b.uid);
  });
}

Offered OfferTo(const WaitingJob& job, const std::vector<FleetNode>& fleet) {
  Offered out;
  for (const FleetNode& node : fleet) {
    NodeOffer offer{.node = node.name, .num_slots = 0, .free_slots = {}};
    bool any_taken = false;
    for (const FleetSlot& slot : node.slots) {
      any_taken |= slot.taken;
      if (slot.device != job.device) continue;
      ++offer.num_slots;
      if (!slot.taken) offer.free_slots.push_back(slot.index);
    }
    if (offer.num_slots == 0) continue;
    ++out.num_nodes;
    const bool matches = std::ranges::all_of(job.selector, [&node](const auto& wanted) {
      const auto found = node.labels.find(wanted.first);
      return found != node.labels.end() && found->second == wanted.second;
    });
    if (!matches) continue;
    ++out.num_matching;
    out.num_whole += any_taken ? 0 : 1;
    out.total += offer.num_slots;
    if (node.exclusively_taken || (job.exclusive && any_taken)) offer.free_slots.clear();
    std::ranges::sort(offer.free_slots);
    out.free += NumFree(offer);
    out.offers.push_back(std::move(offer));
  }
  return out;
}

std::string WaitReason(const WaitingJob& job, const Offered& offered) {
  std::string needs = fmt::format("needs {} {} slot{}", job.num_slots, job.slot_kind,
                                  job.num_slots == 1 ? "" : "s");
  std::string labels;
  for (const auto& [name, value] : job.selector)
    labels += fmt::format("{}{}={}", labels.empty() ? " on nodes with " : ", ", name, value);
  needs += labels;
  if (offered.num_nodes == 0)
    return fmt::format("{}, no worker is connected{}", needs,
                       job.exclusive ? " (exclusive: whole nodes only)" : "");
  if (offered.num_matching == 0)
    return fmt::format("{}, no connected node has these labels", needs);
  if (offered.total < job.num_slots) {
    return fmt::format("{}, {} {}", needs, labels.empty() ? "cluster has" : "those have",
                       offered.total);
  }
  if (job.exclusive) {
    return fmt::format("{} on whole nodes (exclusive), {} of {} nodes are entirely free", needs,
                       offered.num_whole, offered.num_matching);
  }
  return fmt::format("{}, {} of {} are free", needs, offered.free, offered.total);
}

}  // namespace mt::daemon
