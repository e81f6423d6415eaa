// A small key-value store shared by all ranks of an epoch, through which members exchange addresses
// while a group is created (as PyTorch's Store). Implemented in memory (ranks as threads), in a
// folder (processes without a daemon) and by worker/rank over its channel to the worker.
#pragma once

#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace mt::comm {

// Keys are unique per group and member and written once. Values are binary, at most a few KiB.
// Thread-safe.
class RendezvousStore {
 public:
  virtual ~RendezvousStore() = default;
  // Stores a value. kAlreadyExists if the key has another value; storing the same value again is
  // OK.
  virtual Status Set(const std::string& key, std::string_view bytes) = 0;
  // Blocks until the key exists and returns its value; kDeadlineExceeded, with the key, if the
  // deadline passes first.
  virtual StatusOr<std::string> Get(const std::string& key, base::MonotonicTime deadline) = 0;
};

}  // namespace mt::comm
