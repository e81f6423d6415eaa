// Keeps a job alive that was submitted with `held`, for as long as this object lives: a thread
// calls the coordinator each 2 s (L11). A call that fails is made up by the next one.
#pragma once

#include <string>
#include <thread>

#include "client/session/api.h"
#include "common/base/mutex.h"

namespace mt::client {

class HeldJob {
 public:
  // The connection outlives it.
  HeldJob(const Api& api, std::string job_uid);
  // Ends the call that is under way; does not block for longer.
  ~HeldJob();
  HeldJob(const HeldJob&) = delete;
  HeldJob& operator=(const HeldJob&) = delete;

 private:
  void Run();

  const Api& api_;
  const std::string job_uid_;
  StreamStopper stopper_;
  base::Mutex mu_;
  base::CondVar ended_changed_;
  bool ended_ GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace mt::client
