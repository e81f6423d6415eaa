// Where the members of a group leave their addresses for each other while it is created: a small
// map that all ranks of an epoch share. Implemented in memory (ranks as threads), in a folder
// (processes of one host without a daemon), and by worker/rank over its channel to the worker.
#pragma once

#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace mt::comm {

// Keys are unique by group and member and written once. Values are binary, at most a few KiB.
// Thread-safe.
class RendezvousStore {
 public:
  virtual ~RendezvousStore() = default;
  // kAlreadyExists where the key has another value; the same value again is OK.
  virtual Status Set(const std::string& key, std::string_view bytes) = 0;
  // Waits until the key is there; kDeadlineExceeded names it when the deadline passes first.
  virtual StatusOr<std::string> Get(const std::string& key, base::MonotonicTime deadline) = 0;
};

}  // namespace mt::comm
