// The pause counts from the call's beginning, so that a slow call makes no gap.
#include "client/session/held_job.h"

#include <chrono>
#include <utility>

#include "common/control/numbers.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {

HeldJob::HeldJob(const Api& api, std::string job_uid)
    : api_(api), job_uid_(std::move(job_uid)), thread_([this] { Run(); }) {}

HeldJob::~HeldJob() {
  {
    base::MutexLock lock(&mu_);
    ended_ = true;
  }
  ended_changed_.NotifyAll();
  stopper_.Stop();
  thread_.join();
}

void HeldJob::Run() {
  v1::HoldOutputRequest request;
  request.mutable_job()->set_uid(job_uid_);
  for (;;) {
    const auto next = std::chrono::steady_clock::now() + control::kOutputHoldInterval;
    (void)OutputsApi(api_).Hold(request, &stopper_);
    base::MutexLock lock(&mu_);
    while (!ended_ && ended_changed_.WaitUntil(&mu_, next)) {
    }
    if (ended_) return;
  }
}

}  // namespace mt::client
