// What becomes of a read from a mapped file whose bytes are gone: a file that is cut while it is
// mapped, or a storage that does not answer, is told to the reading thread as SIGBUS, which would
// end the process without a word. Within a guarded range the handler puts zeros in place of all
// that follows, notes it, and the read goes on; the reader asks afterwards (README.md, decision 4).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace mt::data {

// Lives as long as the process, so that the handler may look at it at any time.
struct GuardedRange {
  std::atomic<uintptr_t> begin = 0;  // 0: not mapped any more
  std::atomic<size_t> bytes = 0;
  std::atomic<bool> lost = false;
  GuardedRange* next = nullptr;  // set before others see the range
};

// Guards a mapping that begins at a page; `bytes` > 0. The first call installs the handler of
// SIGBUS, which hands on whatever lies in no guarded range to the one that was there. Thread-safe.
GuardedRange* GuardMapping(const std::byte* data, size_t bytes);
// Before the mapping goes. Nobody reads from it meanwhile.
void ForgetMapping(GuardedRange* range);
// True if a read before this call, in any thread, has met bytes that are gone: what was read is
// worth nothing. Costs a load.
bool IsLost(const GuardedRange& range);

}  // namespace mt::data
