// A thread that reads histories, so that neither the core nor gRPC's threads wait for the disk.
// Thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "common/base/mutex.h"

namespace mt::daemon {

class HistoryReader {
 public:
  HistoryReader();
  ~HistoryReader();  // Stop
  // Runs the task soon, in order of posting. After Stop it runs at once, on the caller's thread.
  void Post(std::function<void()> task);
  // Runs what has been posted, then joins the thread. Called by one thread.
  void Stop();

 private:
  void Run();

  base::Mutex mu_;
  base::CondVar wake_;
  std::deque<std::function<void()>> tasks_ GUARDED_BY(mu_);
  bool stopping_ GUARDED_BY(mu_) = false;
  std::thread thread_;  // last, since it uses all members above
};

}  // namespace mt::daemon
