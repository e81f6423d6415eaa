// A thread beside the training thread that runs communication in the order in which it was posted,
// as a communication stream does on a GPU. On CPU slots collectives block, so overlapping them with
// computation takes a thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "common/base/mutex.h"
#include "common/base/status.h"

namespace mt::parallel {

// Owned and used by one thread; status() and busy() by any. Tasks run one after the other. After
// the first task that fails or throws no other runs, and its status is kept. A task may block until
// the deadline of its collectives.
class CommThread {
 public:
  using Task = std::function<Status()>;
  // A task's number in the order of posting, from 1 on.
  using Ticket = int64_t;

  // `name` is the thread's name, at most 15 characters.
  explicit CommThread(const std::string& name);
  // Drops the tasks that have not started and joins the thread, which blocks until the running task
  // ends. To end that one early, abort its group first.
  ~CommThread();
  CommThread(const CommThread&) = delete;
  CommThread& operator=(const CommThread&) = delete;

  // Queues a task and returns at once.
  Ticket Post(Task task);
  // Blocks until this task and all before it are done, or were dropped after a failure. Returns
  // status().
  Status Wait(Ticket ticket);
  // OK, or the status of the first task that failed.
  Status status() const;
  // True while a task is queued or running.
  bool busy() const;

 private:
  void Run();
  static Status Run(const Task& task);

  mutable base::Mutex mu_;
  base::CondVar changed_;
  std::deque<Task> tasks_ GUARDED_BY(mu_);
  Ticket num_posted_ GUARDED_BY(mu_) = 0;
  Ticket num_done_ GUARDED_BY(mu_) = 0;
  bool stop_ GUARDED_BY(mu_) = false;
  Status status_ GUARDED_BY(mu_);
  std::thread thread_;  // last: it uses the members above
};

}  // namespace mt::parallel
