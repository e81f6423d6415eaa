// A queue under one mutex. A task is destroyed before it counts as done, so that what it captured
// may be destroyed by whoever waited for it.
#include "worker/parallel/comm_thread.h"

#include <pthread.h>
#include <utility>

#include "worker/failure/failure.h"

namespace mt::parallel {

CommThread::CommThread(const std::string& name) : thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), name.c_str());
}

CommThread::~CommThread() {
  {
    base::MutexLock lock(&mu_);
    stop_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

CommThread::Ticket CommThread::Post(Task task) {
  base::MutexLock lock(&mu_);
  tasks_.push_back(std::move(task));
  changed_.NotifyAll();
  return ++num_posted_;
}

Status CommThread::Wait(Ticket ticket) {
  base::MutexLock lock(&mu_);
  while (num_done_ < ticket) changed_.Wait(&mu_);
  return status_;
}

Status CommThread::status() const {
  base::MutexLock lock(&mu_);
  return status_;
}

bool CommThread::busy() const {
  base::MutexLock lock(&mu_);
  return num_done_ < num_posted_;
}

// What a task throws is its failure: nobody above this thread could catch it.
Status CommThread::Run(const Task& task) {
  try {
    return task();
  } catch (...) {
    return failure::StatusOfException();
  }
}

void CommThread::Run() {
  while (true) {
    Task task;
    bool broken = false;
    {
      base::MutexLock lock(&mu_);
      while (tasks_.empty() && !stop_) changed_.Wait(&mu_);
      if (stop_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
      broken = !status_.ok();
    }
    Status status = broken ? OkStatus() : Run(task);
    task = nullptr;  // destroy its captures before it counts as done
    base::MutexLock lock(&mu_);
    if (status_.ok()) status_ = std::move(status);
    ++num_done_;
    changed_.NotifyAll();
  }
}

}  // namespace mt::parallel
