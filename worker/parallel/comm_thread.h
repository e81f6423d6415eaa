// A thread beside the training thread that runs communication in the order in which it was asked
// for: what a stream of its own is on a GPU. On CPU slots collectives block, so overlapping them
// with computation takes a thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "common/base/mutex.h"
#include "common/base/status.h"

namespace mt::parallel {

// Owned and fed by one thread. Tasks run one after the other; the first that fails is the last that
// runs, and its status sticks. A task may block as long as its collectives' deadlines let it.
class CommThread {
 public:
  using Task = std::function<Status()>;
  // A place in the queue, rising.
  using Ticket = int64_t;

  // `name` is the thread's, at most 15 characters.
  explicit CommThread(const std::string& name);
  // Drops the tasks that have not begun and waits for the one that runs; whoever has to end that
  // one early aborts its group first.
  ~CommThread();
  CommThread(const CommThread&) = delete;
  CommThread& operator=(const CommThread&) = delete;

  Ticket Post(Task task);
  // Waits until that task and all before it are over, or dropped behind one that failed. Returns
  // status().
  Status Wait(Ticket ticket);
  // OK, or what the first task that failed returned.
  Status status() const;
  // Whether a task waits or runs.
  bool busy() const;

 private:
  void Run();

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
