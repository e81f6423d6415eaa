// Which of the ready streams runs its next call: drawn from a seed, so that an order can be had
// again. For a drawn number of calls in a row streams have a fixed precedence, so that one may be
// far ahead of another.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/async/async_call.h"

namespace mt::kernels::async {

// Not thread-safe.
class RunOrder {
 public:
  explicit RunOrder(uint64_t seed) : random_(seed) {}

  // One of `ready`, which must not be empty. Depends on ranks and ordinals alone.
  StreamQueue* Draw(std::span<StreamQueue* const> ready);
  // Adds a call that runs to the hash of the order.
  void Note(const StreamQueue& queue, const std::string& label);

  int64_t num_calls() const { return num_calls_; }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t random_;  // state of a generator
  uint64_t episode_ = 0;
  uint64_t left_in_episode_ = 0;
  int64_t num_calls_ = 0;
  uint64_t hash_ = 0;
};

}  // namespace mt::kernels::async
