// A counter hands out the tasks.
#include "worker/checkpoint/format/parallel_tasks.h"

#include <algorithm>
#include <atomic>
#include <pthread.h>
#include <thread>
#include <vector>

namespace mt::checkpoint {

void RunTasks(int64_t count, int threads, const std::function<void(int64_t)>& task) {
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) task(i);
  };
  std::vector<std::jthread> others;
  for (int64_t i = 1; i < std::min<int64_t>(threads, count); ++i) {
    others.emplace_back(work);
    ::pthread_setname_np(others.back().native_handle(), "mt-ckpt");
  }
  work();
}

int AllCores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

}  // namespace mt::checkpoint
