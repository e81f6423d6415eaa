// The handler calls nothing but mmap, by its number: interceptors of sanitizers are no place for a
// signal handler. Ranges are a list that only grows, so it is read without a lock.
#include "worker/data/mapping_guard.h"

#include <cerrno>
#include <csignal>
#include <mutex>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/check.h"

namespace mt::data {
namespace {

std::atomic<GuardedRange*> first_range = nullptr;
struct sigaction former {};
uintptr_t page_bytes = 0;

GuardedRange* RangeOf(uintptr_t address) {
  for (GuardedRange* range = first_range.load(); range != nullptr; range = range->next) {
    const uintptr_t begin = range->begin.load();
    if (begin != 0 && address >= begin && address - begin < range->bytes.load()) return range;
  }
  return nullptr;
}

// Puts zeros from the page of this address to the end of its range.
bool PutZeros(uintptr_t address) {
  GuardedRange* const range = RangeOf(address);
  if (range == nullptr) return false;
  // First, so that no other thread sees the zeros without it.
  range->lost.store(true);
  const uintptr_t page = address & ~(page_bytes - 1);
  const size_t rest = range->begin.load() + range->bytes.load() - page;
  return ::syscall(SYS_mmap, page, rest, PROT_READ,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
                   0) == static_cast<long>(page);
}

void HandOn(int signal, siginfo_t* info, void* context) {
  if ((former.sa_flags & SA_SIGINFO) != 0) {
    former.sa_sigaction(signal, info, context);
  } else if (former.sa_handler != SIG_DFL && former.sa_handler != SIG_IGN) {
    former.sa_handler(signal);
  } else {
    // The access is made again and ends the process as if there had been no handler; a signal that
    // somebody sent has to be sent again.
    ::sigaction(SIGBUS, &former, nullptr);
    if (info->si_code <= 0) ::raise(signal);
  }
}

void OnBusError(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const bool zeros =
      info->si_code == BUS_ADRERR && PutZeros(reinterpret_cast<uintptr_t>(info->si_addr));
  errno = saved_errno;
  if (!zeros) HandOn(signal, info, context);
}

void Install() {
  page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  struct sigaction action {};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  CHECK_EQ(::sigaction(SIGBUS, &action, &former), 0);
}

}  // namespace

GuardedRange* GuardMapping(const std::byte* data, size_t bytes) {
  CHECK(data != nullptr && bytes > 0);
  static std::once_flag installed;
  std::call_once(installed, Install);
  auto* const range = new GuardedRange;
  range->begin = reinterpret_cast<uintptr_t>(data);
  range->bytes = bytes;
  range->next = first_range.load();
  while (!first_range.compare_exchange_weak(range->next, range)) {
  }
  return range;
}

void ForgetMapping(GuardedRange* range) { range->begin.store(0); }

bool IsLost(const GuardedRange& range) {
  // What was read stays in front of the look.
  std::atomic_thread_fence(std::memory_order_acquire);
  return range.lost.load();
}

}  // namespace mt::data
