// One map of values and one of waiting nodes for each (job, epoch).
#include "daemon/rendezvous/key_values.h"

#include <limits>

namespace mt::daemon {

StatusOr<std::vector<std::string>> KeyValues::Set(const JobEpoch& job, std::string_view key,
                                                  std::string_view value) {
  if (key.empty() || key.size() > kMaxRendezvousKeyBytes ||
      value.size() > kMaxRendezvousValueBytes) {
    return base::InvalidArgument(
        "rendezvous key of {} bytes with a value of {} bytes (at most {} and {})", key.size(),
        value.size(), kMaxRendezvousKeyBytes, kMaxRendezvousValueBytes);
  }
  Space& space = spaces_[job];
  const auto old = space.values.find(key);
  const size_t old_bytes = old == space.values.end() ? 0 : key.size() + old->second.size();
  const size_t bytes = space.bytes - old_bytes + key.size() + value.size();
  if (bytes > kMaxRendezvousJobBytes) {
    return base::InvalidArgument("rendezvous of job {} is full ({} bytes)", job.job_uid,
                                 kMaxRendezvousJobBytes);
  }
  space.bytes = bytes;
  space.values.insert_or_assign(std::string(key), std::string(value));
  const auto waiting = space.waiters.find(key);
  if (waiting == space.waiters.end()) return std::vector<std::string>();
  std::vector<std::string> nodes(waiting->second.begin(), waiting->second.end());
  space.waiters.erase(waiting);
  return nodes;
}

const std::string* KeyValues::Get(const JobEpoch& job, std::string_view key,
                                  const std::string& node) {
  if (key.empty() || key.size() > kMaxRendezvousKeyBytes) return nullptr;
  Space& space = spaces_[job];
  const auto found = space.values.find(key);
  if (found != space.values.end()) return &found->second;
  space.waiters[std::string(key)].insert(node);
  return nullptr;
}

void KeyValues::DropWaiter(const std::string& node) {
  for (auto& [job, space] : spaces_) {
    for (auto it = space.waiters.begin(); it != space.waiters.end();) {
      it->second.erase(node);
      it = it->second.empty() ? space.waiters.erase(it) : std::next(it);
    }
  }
}

std::vector<std::pair<JobEpoch, std::string>> KeyValues::Erase(const std::string& job_uid) {
  std::vector<std::pair<JobEpoch, std::string>> erased;
  auto it = spaces_.lower_bound({job_uid, std::numeric_limits<int64_t>::min()});
  while (it != spaces_.end() && it->first.job_uid == job_uid) {
    for (const auto& [key, value] : it->second.values) erased.emplace_back(it->first, key);
    it = spaces_.erase(it);
  }
  return erased;
}

}  // namespace mt::daemon
