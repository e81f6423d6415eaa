// A rendezvous store in memory, for ranks that are threads of one process.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "common/base/mutex.h"
#include "worker/comm/rendezvous_store.h"

namespace mt::comm {

// Thread-safe; Get blocks on a condition variable.
class MemoryStore final : public RendezvousStore {
 public:
  Status Set(const std::string& key, std::string_view bytes) override;
  StatusOr<std::string> Get(const std::string& key, base::MonotonicTime deadline) override;

 private:
  base::Mutex mu_;
  base::CondVar changed_;
  std::map<std::string, std::string> values_ GUARDED_BY(mu_);
};

}  // namespace mt::comm
