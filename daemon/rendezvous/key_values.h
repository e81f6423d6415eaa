// Where the ranks of a job find each other: a small key-value space per (job, epoch). A get of a
// key that is not there yet waits for its set. Bounded per job. Not thread-safe; pure.
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

inline constexpr size_t kMaxRendezvousKeyBytes = 512;
inline constexpr size_t kMaxRendezvousValueBytes = 1 << 20;
inline constexpr size_t kMaxRendezvousJobBytes = 64 << 20;

struct JobEpoch {
  std::string job_uid;
  int64_t epoch;
  auto operator<=>(const JobEpoch&) const = default;
};

class KeyValues {
 public:
  // The nodes that waited for the key, each once; InvalidArgument beyond the bounds. A second set
  // replaces the value.
  StatusOr<std::vector<std::string>> Set(const JobEpoch& job, std::string_view key,
                                         std::string_view value);
  // The value, or nullptr: then `node` waits. The pointer lives until the next call.
  const std::string* Get(const JobEpoch& job, std::string_view key, const std::string& node);
  // Forgets what the node waits for: its session ended, it will ask again.
  void DropWaiter(const std::string& node);
  // All keys of the job, of every epoch; returns what was there.
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
