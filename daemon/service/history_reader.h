// A thread for reading histories, so that neither the core nor gRPC's threads wait for the disk.
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
  // Runs soon, in order. After Stop it runs at once, on the caller's thread.
  void Post(std::function<void()> task);
  // Runs what was posted, then ends the thread. Called by one thread.
  void Stop();

 private:
  void Run();

  base::Mutex mu_;
  base::CondVar wake_;
  std::deque<std::function<void()>> tasks_ GUARDED_BY(mu_);
  bool stopping_ GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace mt::daemon
