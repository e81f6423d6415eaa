// The threads of one CPU backend: parallel loops with a static partition. Which thread does what,
// and with it the order of every sum, depends only on the loop and the thread count. The calling
// thread is thread 0 and takes part; with one thread everything runs inline.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/mutex.h"

namespace mt::kernels::cpu {

class ThreadPool {
 public:
  // Starts num_threads - 1 threads, which the destructor joins.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Calls body(thread) for every thread number in [0, num_threads) and returns when all calls have
  // returned. May be called from several threads: while one loop runs, the bodies of another run
  // inline on its caller, in order. Must not be nested. `body` must not throw.
  template <class Body>
  void ForEachThread(Body&& body) {
    Run([](void* context,
           int thread) { (*static_cast<std::remove_reference_t<Body>*>(context))(thread); },
        const_cast<void*>(static_cast<const void*>(&body)), num_threads_);
  }

  // Splits [0, n) into contiguous, nearly equal ranges of at least `grain` items, at most one per
  // thread, and calls body(begin, end) for each. Blocks until all are done.
  template <class Body>
  void ForRanges(int64_t n, int64_t grain, const Body& body) {
    if (n <= 0) return;
    const int64_t wanted = (n + grain - 1) / grain;
    const int parts = wanted < num_threads_ ? static_cast<int>(wanted) : num_threads_;
    auto range = [&](int part) { body(n * part / parts, n * (part + 1) / parts); };
    Run([](void* context, int part) { (*static_cast<decltype(range)*>(context))(part); }, &range,
        parts);
  }

  // Calls body(task, thread) for tasks 0 .. n-1; thread t runs tasks t, t + num_threads, ... in
  // ascending order, which balances tasks whose cost rises or falls with their number. Blocks until
  // all are done.
  template <class Body>
  void ForTasks(int64_t n, const Body& body) {
    ForEachThread([&](int thread) {
      for (int64_t task = thread; task < n; task += num_threads_) body(task, thread);
    });
  }

 private:
  using Call = void (*)(void* context, int part);
  struct Job {
    Call call = nullptr;
    void* context = nullptr;
    int parts = 0;
  };
  class State;

  void Run(Call call, void* context, int parts);
  void Work(int thread);

  const int num_threads_;
  std::unique_ptr<State> state_;
  std::vector<std::thread> threads_;
};

}  // namespace mt::kernels::cpu
