// Sleeping until another process, or thread, changes a word of shared memory (futex(2)).
// Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace mt::comm {

// Sleeps while `word` is `expected`, at most this long; may return early. The word may be mapped at
// different addresses in the processes that wait and wake.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected,
               std::chrono::nanoseconds at_most);
void FutexWakeAll(const std::atomic<uint32_t>& word);

}  // namespace mt::comm
