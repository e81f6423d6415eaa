// A queue of tasks and the thread "mt-history".
#include "daemon/service/history_reader.h"

#include <pthread.h>
#include <utility>

namespace mt::daemon {

HistoryReader::HistoryReader() : thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "mt-history");
}

HistoryReader::~HistoryReader() { Stop(); }

void HistoryReader::Post(std::function<void()> task) {
  {
    const base::MutexLock lock(&mu_);
    if (!stopping_) {
      tasks_.push_back(std::move(task));
      wake_.NotifyOne();
      return;
    }
  }
  task();
}

void HistoryReader::Stop() {
  {
    const base::MutexLock lock(&mu_);
    stopping_ = true;
    wake_.NotifyOne();
  }
  if (thread_.joinable()) thread_.join();
}

void HistoryReader::Run() {
  for (;;) {
    std::function<void()> task;
    {
      const base::MutexLock lock(&mu_);
      while (tasks_.empty() && !stopping_) wake_.Wait(&mu_);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace mt::daemon
