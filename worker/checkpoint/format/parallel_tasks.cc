// A counter hands out the tasks.
#include "worker/checkpoint/format/parallel_tasks.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <pthread.h>
#include <thread>
#include <vector>

namespace mt::checkpoint {

void RunTasks(int64_t count, int threads, const std::function<void(int64_t)>& task) {
  std::atomic<int64_t> next{0};
  std::once_flag threw;
  std::exception_ptr first;
  const auto work = [&] {
    try {
      for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) task(i);
    } catch (...) {
      std::call_once(threw, [&] { first = std::current_exception(); });
      next = count;
    }
  };
  {
    std::vector<std::jthread> others;
    for (int64_t i = 1; i < std::min<int64_t>(threads, count); ++i) {
      others.emplace_back(work);
      ::pthread_setname_np(others.back().native_handle(), "mt-ckpt");
    }
    work();
  }
  if (first != nullptr) std::rethrow_exception(first);
}

int AllCores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

}  // namespace mt::checkpoint
