// xxh3 (64 bits) of bytes that come in pieces. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <xxhash.h>

#include "common/base/check.h"

namespace mt::daemon {

class RunningSum {
 public:
  RunningSum() : state_(XXH3_createState()) {
    CHECK(state_ != nullptr) << "out of memory";
    Reset();
  }
  void Reset() { XXH3_64bits_reset(state_.get()); }
  void Add(std::string_view bytes) { XXH3_64bits_update(state_.get(), bytes.data(), bytes.size()); }
  uint64_t Get() const { return XXH3_64bits_digest(state_.get()); }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

}  // namespace mt::daemon
