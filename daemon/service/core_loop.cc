// Tasks are taken in batches, and a batch is followed by one commit, so that load raises the number
// of changes per sync instead of the latency.
#include "daemon/service/core_loop.h"

#include <chrono>
#include <pthread.h>
#include <utility>

namespace mt::daemon {
namespace {

constexpr std::chrono::milliseconds kTick{100};

}  // namespace

CoreLoop::CoreLoop(Core* core, std::function<void(const Status&)> on_failure,
                   std::function<void(Core&)> on_turn)
    : core_(core),
      on_failure_(std::move(on_failure)),
      on_turn_(std::move(on_turn)),
      thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "mt-core");
}

CoreLoop::~CoreLoop() { Stop(); }

void CoreLoop::Post(Task task) {
  {
    const base::MutexLock lock(&mu_);
    if (stopping_) return;
    tasks_.push_back(std::move(task));
  }
  wake_.NotifyOne();
}

void CoreLoop::Stop() {
  {
    const base::MutexLock lock(&mu_);
    stopping_ = true;
  }
  wake_.NotifyOne();
  if (thread_.joinable()) thread_.join();
}

bool CoreLoop::WaitForTasks(std::vector<Task>* tasks) {
  const auto until = std::chrono::steady_clock::now() + kTick;
  const base::MutexLock lock(&mu_);
  while (tasks_.empty() && !stopping_) {
    if (!wake_.WaitUntil(&mu_, until)) break;
  }
  *tasks = std::exchange(tasks_, {});
  return !(stopping_ && tasks->empty());
}

void CoreLoop::Run() {
  auto next_tick = std::chrono::steady_clock::now();
  std::vector<Task> tasks;
  while (WaitForTasks(&tasks)) {
    core_->Turn();
    for (const Task& task : tasks) task(*core_);
    const auto now = std::chrono::steady_clock::now();
    if (now >= next_tick) {
      core_->Tick();
      next_tick = now + kTick;
    }
    const Status status = core_->Commit();
    if (!status.ok() && on_failure_) std::exchange(on_failure_, nullptr)(status);
    if (status.ok() && on_turn_) on_turn_(*core_);
  }
}

}  // namespace mt::daemon
