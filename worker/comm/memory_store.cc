// A map under a mutex; every Set wakes all waiting Gets.
#include "worker/comm/memory_store.h"

namespace mt::comm {

Status MemoryStore::Set(const std::string& key, std::string_view bytes) {
  const base::MutexLock lock(&mu_);
  const auto [it, is_new] = values_.emplace(key, bytes);
  if (!is_new && it->second != bytes) {
    return base::Error(absl::StatusCode::kAlreadyExists,
                       "rendezvous key {} has another value: names of groups are used once", key);
  }
  changed_.NotifyAll();
  return OkStatus();
}

StatusOr<std::string> MemoryStore::Get(const std::string& key, base::MonotonicTime deadline) {
  const base::MutexLock lock(&mu_);
  for (bool in_time = true;; in_time = changed_.WaitUntil(&mu_, deadline)) {
    const auto it = values_.find(key);
    if (it != values_.end()) return it->second;
    if (!in_time) {
      return base::Error(absl::StatusCode::kDeadlineExceeded,
                         "rendezvous: nobody has set {} in time", key);
    }
  }
}

}  // namespace mt::comm
