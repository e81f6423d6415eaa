// Sorting and greedy filling over node offers, and the text that explains a waiting job.
#include "daemon/scheduler/placement.h"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "common/base/check.h"

namespace mt::daemon {
namespace {

constexpr size_t kMaxNodesShown = 8;

int64_t NumFree(const NodeOffer& offer) { return static_cast<int64_t>(offer.free_slots.size()); }

// The slots of each node, the largest first: "3 + 1", or "3 + 1 + ... (12 nodes)".
std::string PerNode(std::vector<int64_t> slots) {
  std::ranges::sort(slots, std::greater<>());
  const size_t shown = std::min(slots.size(), kMaxNodesShown);
  std::string text = fmt::format(
      "{}", fmt::join(slots.begin(), slots.begin() + static_cast<std::ptrdiff_t>(shown), " + "));
  if (shown < slots.size()) text += fmt::format(" + ... ({} nodes)", slots.size());
  return text;
}

// The node with the fewest free slots among those, from offers[first] on, that can hold `rest`
// groups.
const NodeOffer* Tightest(const std::vector<NodeOffer>& offers, size_t first, int64_t rest,
                          int64_t group) {
  const NodeOffer* best = nullptr;
  for (size_t i = first; i < offers.size() && NumFree(offers[i]) / group >= rest; ++i) {
    if (best == nullptr || NumFree(offers[i]) < NumFree(*best)) best = &offers[i];
  }
  return best;
}

bool Matches(const WaitingJob& job, const FleetNode& node) {
  return std::ranges::all_of(job.selector, [&node](const auto& wanted) {
    const auto found = node.labels.find(wanted.first);
    return found != node.labels.end() && found->second == wanted.second;
  });
}

// The beginning of every reason: "needs 8 GPU slots on nodes with zone=b".
std::string Needs(const WaitingJob& job) {
  std::string needs = fmt::format("needs {} {} slot{}", job.num_slots, job.slot_kind,
                                  job.num_slots == 1 ? "" : "s");
  if (job.group > 1) {
    needs = fmt::format("needs {} x {} {} slots (tensor-parallel groups of {}, each on one node)",
                        job.num_slots / job.group, job.group, job.slot_kind, job.group);
  }
  const char* between = " on nodes with ";
  for (const auto& [name, value] : job.selector) {
    needs += fmt::format("{}{}={}", between, name, value);
    between = ", ";
  }
  return needs;
}

// ", 2 out of order (node-a: OpenBLAS multiplies wrongly)"; empty where none is.
std::string OutOfOrderText(const Offered& offered) {
  if (offered.out_of_order == 0) return "";
  std::string text = fmt::format(", {} out of order", offered.out_of_order);
  if (!offered.why_out_of_order.empty()) text += fmt::format(" ({})", offered.why_out_of_order);
  return text;
}

}  // namespace

std::vector<PlacedRank> Place(std::vector<NodeOffer> offers, const Gang& gang) {
  CHECK(gang.num_ranks >= 0 && gang.group >= 1 && gang.num_ranks % gang.group == 0)
      << gang.num_ranks << " ranks in groups of " << gang.group;
  int64_t rest = gang.num_ranks / gang.group;
  int64_t free = 0;
  for (const NodeOffer& offer : offers) free += NumFree(offer) / gang.group;
  if (rest == 0 || free < rest) return {};
  // Most whole groups first; among equals the fewest slots left over, then by name.
  std::ranges::sort(offers, {}, [&gang](const NodeOffer& offer) {
    return std::make_tuple(-(NumFree(offer) / gang.group), NumFree(offer), offer.node);
  });
  std::vector<PlacedRank> placed;
  placed.reserve(static_cast<size_t>(gang.num_ranks));
  const auto take = [&](const NodeOffer& offer, int64_t groups) {
    for (int64_t i = 0; i < groups * gang.group; ++i) {
      placed.push_back(
          {static_cast<int>(placed.size()), offer.node, offer.free_slots[static_cast<size_t>(i)]});
    }
  };
  for (size_t i = 0; rest > 0; ++i) {
    const NodeOffer* last = Tightest(offers, i, rest, gang.group);
    const int64_t groups = last != nullptr ? rest : NumFree(offers[i]) / gang.group;
    take(last != nullptr ? *last : offers[i], groups);
    rest -= groups;
  }
  return placed;
}

std::vector<PlacedRank> PlaceAgain(const std::vector<PlacedRank>& before,
                                   std::vector<NodeOffer> offers, const Gang& gang) {
  const auto group = static_cast<size_t>(gang.group);
  if (static_cast<int64_t>(before.size()) != gang.num_ranks) return Place(std::move(offers), gang);
  // Takes the slots of ranks first to first + group out of the offers; false: one is not free.
  const auto take = [&](size_t first) {
    const auto offer = std::ranges::find(offers, before[first].node, &NodeOffer::node);
    if (offer == offers.end()) return false;
    std::vector<int> free = offer->free_slots;
    for (size_t i = first; i < first + group; ++i) {
      const auto slot = std::ranges::find(free, before[i].slot);
      if (before[i].node != offer->node || slot == free.end()) return false;
      free.erase(slot);
    }
    offer->free_slots = std::move(free);
    return true;
  };
  std::vector<PlacedRank> placed = before;
  std::vector<size_t> missing;  // the first rank of each group
  for (size_t first = 0; first < before.size(); first += group) {
    if (!take(first)) missing.push_back(first);
  }
  if (missing.empty()) return placed;
  const auto num_missing = static_cast<int64_t>(missing.size() * group);
  const std::vector<PlacedRank> more =
      Place(std::move(offers), {.num_ranks = num_missing, .group = gang.group});
  if (more.empty()) return {};
  for (size_t i = 0; i < more.size(); ++i) {
    PlacedRank& rank = placed[missing[i / group] + i % group];
    rank.node = more[i].node;
    rank.slot = more[i].slot;
  }
  return placed;
}

void SortQueue(std::vector<WaitingJob>* jobs) {
  std::ranges::sort(*jobs, [](const WaitingJob& a, const WaitingJob& b) {
    return std::tie(a.stands_back, b.priority, b.goes_first, a.created_us, a.uid) <
           std::tie(b.stands_back, a.priority, a.goes_first, b.created_us, b.uid);
  });
}

bool TakesGpus(const WaitingJob& job, const std::vector<FleetNode>& fleet, int gpu_device) {
  return std::ranges::any_of(fleet, [&](const FleetNode& node) {
    return Matches(job, node) && std::ranges::any_of(node.slots, [&](const FleetSlot& slot) {
             return slot.device == gpu_device;
           });
  });
}

Offered OfferTo(const WaitingJob& job, const std::vector<FleetNode>& fleet) {
  Offered out;
  out.num_connected = static_cast<int64_t>(fleet.size());
  for (const FleetNode& node : fleet) {
    NodeOffer offer{.node = node.name, .num_slots = 0, .free_slots = {}};
    bool any_taken = false;
    int64_t out_of_order = 0;
    std::string why;
    for (const FleetSlot& slot : node.slots) {
      any_taken |= slot.taken;
      if (slot.device != job.device) continue;
      out_of_order += slot.out_of_order ? 1 : 0;
      if (slot.out_of_order && why.empty()) why = slot.why;
      if (slot.out_of_order) continue;
      ++offer.num_slots;
      if (!slot.taken) offer.free_slots.push_back(slot.index);
    }
    if (offer.num_slots + out_of_order == 0) continue;
    ++out.num_nodes;
    if (!Matches(job, node)) continue;
    ++out.num_matching;
    out.num_whole += any_taken ? 0 : 1;
    out.total += offer.num_slots;
    out.out_of_order += out_of_order;
    if (out.why_out_of_order.empty() && !why.empty())
      out.why_out_of_order = fmt::format("{}: {}", node.name, why);
    out.capacity += offer.num_slots / job.group * job.group;
    if (node.exclusively_taken || (job.exclusive && any_taken)) offer.free_slots.clear();
    std::ranges::sort(offer.free_slots);
    out.free += NumFree(offer);
    out.offers.push_back(std::move(offer));
  }
  return out;
}

bool FitsCluster(const WaitingJob& job, const Offered& offered) {
  return offered.capacity >= job.num_slots;
}

std::string WaitReason(const WaitingJob& job, const Offered& offered) {
  const std::string needs = Needs(job);
  const std::string broken = OutOfOrderText(offered);
  if (offered.num_connected == 0) {
    return fmt::format("{}, no worker is connected{}", needs,
                       job.exclusive ? " (exclusive: whole nodes only)" : "");
  }
  if (offered.num_nodes == 0)
    return fmt::format("{}, no connected node has {} slots", needs, job.slot_kind);
  if (offered.num_matching == 0)
    return fmt::format("{}, no connected node has these labels", needs);
  const auto each = [&offered](auto slots_of) {
    std::vector<int64_t> slots;
    slots.reserve(offered.offers.size());
    for (const NodeOffer& offer : offered.offers) slots.push_back(slots_of(offer));
    return PerNode(std::move(slots));
  };
  if (!FitsCluster(job, offered)) {
    return fmt::format("{}, {} {}{}", needs, job.selector.empty() ? "cluster has" : "those have",
                       job.group > 1 ? each([](const NodeOffer& o) { return o.num_slots; })
                                     : fmt::format("{}", offered.total),
                       broken);
  }
  if (job.exclusive) {
    return fmt::format("{} on whole nodes (exclusive), {} of {} nodes are entirely free", needs,
                       offered.num_whole, offered.num_matching);
  }
  if (job.group > 1) return fmt::format("{}, free: {}{}", needs, each(NumFree), broken);
  return fmt::format("{}, {} of {} are free{}", needs, offered.free, offered.total, broken);
}

}  // namespace mt::daemon
