// Hand-over of jobs to the worker threads: a generation counter that workers spin on for a while
// before they sleep on a condition variable, and a pending counter that the caller waits for in the
// same way. A pool that is busy with another caller's loop runs the new loop inline.
#include "kernels/cpu/thread_pool.h"

#include <atomic>
#include <pthread.h>
#include <string>

#include "common/base/check.h"

namespace mt::kernels::cpu {
namespace {

// Iterations of spinning (tens of microseconds) before a thread sleeps: the loops of one step
// follow each other closely, and a wake-up through the kernel costs more than a short loop.
constexpr int kSpins = 4000;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

class ThreadPool::State {
 public:
  // Publishes `job` to the workers. Called only by the thread that holds `busy`.
  void Publish(const Job& job, int workers) {
    pending_.store(workers, std::memory_order_relaxed);
    base::MutexLock lock(&mutex_);
    job_ = job;
    generation_.fetch_add(1, std::memory_order_release);
    wake_.NotifyAll();
  }

  // Blocks until every worker has finished the published job.
  void AwaitWorkers() {
    for (int i = 0; i < kSpins; ++i) {
      if (pending_.load(std::memory_order_acquire) == 0) return;
      Pause();
    }
    base::MutexLock lock(&mutex_);
    while (pending_.load(std::memory_order_acquire) != 0) done_.Wait(&mutex_);
  }

  // Blocks until a job newer than generation *seen exists and returns it; call == nullptr ends the
  // worker.
  Job Next(uint64_t* seen) {
    for (int i = 0; i < kSpins && generation_.load(std::memory_order_acquire) == *seen; ++i) {
      Pause();
    }
    base::MutexLock lock(&mutex_);
    while (generation_.load(std::memory_order_acquire) == *seen) wake_.Wait(&mutex_);
    *seen = generation_.load(std::memory_order_acquire);
    return job_;
  }

  void Finished() {
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    base::MutexLock lock(&mutex_);
    done_.NotifyOne();
  }

  std::atomic<bool> busy{false};

 private:
  base::Mutex mutex_;
  base::CondVar wake_, done_;
  Job job_ GUARDED_BY(mutex_);
  std::atomic<uint64_t> generation_{0};
  std::atomic<int> pending_{0};
};

ThreadPool::ThreadPool(int num_threads)
    : num_threads_(num_threads), state_(std::make_unique<State>()) {
  CHECK_GE(num_threads, 1);
  for (int thread = 1; thread < num_threads; ++thread) {
    threads_.emplace_back([this, thread] { Work(thread); });
    pthread_setname_np(threads_.back().native_handle(),
                       ("mt-cpu-" + std::to_string(thread)).c_str());
  }
}

ThreadPool::~ThreadPool() {
  state_->Publish({}, num_threads_ - 1);
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Work(int thread) {
  uint64_t seen = 0;
  while (true) {
    const Job job = state_->Next(&seen);
    if (job.call == nullptr) return;
    if (thread < job.parts) job.call(job.context, thread);
    state_->Finished();
  }
}

void ThreadPool::Run(Call call, void* context, int parts) {
  bool free = false;
  if (parts > 1 && state_->busy.compare_exchange_strong(free, true, std::memory_order_acquire)) {
    state_->Publish({call, context, parts}, num_threads_ - 1);
    call(context, 0);
    state_->AwaitWorkers();
    state_->busy.store(false, std::memory_order_release);
    return;
  }
  for (int part = 0; part < parts; ++part) call(context, part);
}

}  // namespace mt::kernels::cpu
