// The digest that each node's heartbeat should carry if its agent and the ledger mean the same
// (common/control/held_digest.h): kept up to date with every change of an allocation, so that a
// heartbeat is compared in constant time. Not thread-safe (the core's thread).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace megatrain::v1 {
class StoredAllocation;
}

namespace mt::daemon {

class HeldDigests {
 public:
  // The allocation of that key is new, or has changed.
  void Set(const std::string& key, const megatrain::v1::StoredAllocation& allocation);
  void Erase(const std::string& key);
  // 0 for a node that holds nothing.
  uint64_t Of(std::string_view node) const;

 private:
  struct Share {
    std::string node;
    uint64_t sum = 0;
  };
  std::map<std::string, Share, std::less<>> shares_;  // by the allocation's key
  std::map<std::string, uint64_t, std::less<>> by_node_;
};

}  // namespace mt::daemon
