// The rendezvous of a job's ranks: a small key-value store per (job, epoch), as torch.distributed's
// TCPStore or Gloo's stores. A get of a missing key waits for the set. Bounded per job epoch. Not
// thread-safe; pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"

namespace mt::daemon {

// Longest key and value, and the sum of keys and values that one epoch of a job may hold.
inline constexpr size_t kMaxRendezvousKeyBytes = 512;
inline constexpr size_t kMaxRendezvousValueBytes = 1 << 20;
inline constexpr size_t kMaxRendezvousJobBytes = 64 << 20;

// Ranks of different epochs never see each other's keys.
struct JobEpoch {
  std::string job_uid;
  int64_t epoch;
  auto operator<=>(const JobEpoch&) const = default;
};

class KeyValues {
 public:
  // Stores the value, replacing an earlier one, and returns the nodes that waited for the key, each
  // once. InvalidArgument for an empty key and beyond the bounds.
  StatusOr<std::vector<std::string>> Set(const JobEpoch& job, std::string_view key,
                                         std::string_view value);
  // The value, or nullptr, in which case `node` is registered as waiting. The pointer is valid
  // until the next call.
  const std::string* Get(const JobEpoch& job, std::string_view key, const std::string& node);
  // Forgets what the node waits for: its session has ended, and it will ask again.
  void DropWaiter(const std::string& node);
  // Erases all keys of the job in every epoch and returns them.
  std::vector<std::pair<JobEpoch, std::string>> Erase(const std::string& job_uid);
  size_t num_jobs() const { return spaces_.size(); }

 private:
  struct Space {
    std::map<std::string, std::string, std::less<>> values;
    std::map<std::string, std::set<std::string>, std::less<>> waiters;  // key -> nodes
    size_t bytes = 0;
  };
  std::map<JobEpoch, Space> spaces_;
};

}  // namespace mt::daemon
