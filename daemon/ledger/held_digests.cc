// An allocation's share of its node's sum is taken out and put in anew with each change.
#include "daemon/ledger/held_digests.h"

#include "common/control/held_digest.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {
namespace {

namespace v1 = megatrain::v1;

// The agent counts an allocation from the moment when it has accepted it until it is gone.
bool IsHeld(const v1::StoredAllocation& allocation) { return allocation.state() != v1::RESERVED; }

}  // namespace

void HeldDigests::Set(const std::string& key, const v1::StoredAllocation& allocation) {
  Erase(key);
  if (!IsHeld(allocation)) return;
  Share share{.node = allocation.node()};
  for (int i = 0; i < allocation.ranks_size(); ++i) {
    const bool ended = i < allocation.ended_size() && allocation.ended(i);
    share.sum +=
        control::HeldRankHash(allocation.job_uid(), allocation.epoch(), allocation.ranks(i), ended);
  }
  by_node_[share.node] += share.sum;
  shares_[key] = std::move(share);
}

void HeldDigests::Erase(const std::string& key) {
  const auto found = shares_.find(key);
  if (found == shares_.end()) return;
  by_node_[found->second.node] -= found->second.sum;
  shares_.erase(found);
}

uint64_t HeldDigests::Of(std::string_view node) const {
  const auto found = by_node_.find(node);
  return found == by_node_.end() ? 0 : found->second;
}

}  // namespace mt::daemon
