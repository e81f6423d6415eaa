// Exit codes and document are those of worker/node/probe/inventory.h.
#include "worker/node/gpus/probe_process.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "worker/node/process/captured_run.h"
#include "worker/node/process/process.h"

namespace mt::node {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAfterKill{1'000};

StatusOr<CapturedRun> StartProbe(const std::string& binary) { return StartCaptured({binary}); }

// Of a child that has ended.
StatusOr<GpuInventory> Collect(const CapturedRun& child) {
  int status = 0;
  if (::waitpid(child.pid, &status, WNOHANG) != child.pid)
    return base::Internal("mt-gpu-probe: its exit cannot be collected");
  if (WIFSIGNALED(status))
    return base::Unavailable("mt-gpu-probe was ended by signal {}", WTERMSIG(status));
  const int code = WEXITSTATUS(status);
  auto inventory = GpuInventoryFromJson(OutputOf(child));
  if (!inventory.ok()) {
    return base::Internal("mt-gpu-probe, exit code {}: {}", code,
                          base::Message(inventory.status()));
  }
  if (code == kProbeOk) return inventory;
  if (code == kProbeNoDriver) return base::NotFound("{}", inventory->error);
  return base::Unavailable("{}", inventory->error);
}

Status NoAnswer(milliseconds deadline) {
  return base::Error(absl::StatusCode::kDeadlineExceeded,
                     "the NVIDIA driver has not answered within {:.3g} s",
                     std::chrono::duration<double>(deadline).count());
}

}  // namespace

StatusOr<GpuInventory> ProbeNow(const std::string& binary, milliseconds deadline) {
  ASSIGN_OR_RETURN(const CapturedRun child, StartProbe(binary));
  if (EndsWithin(child, deadline)) return Collect(child);
  SignalProcess(child.process, SIGKILL);
  if (EndsWithin(child, kAfterKill)) ::waitpid(child.pid, nullptr, WNOHANG);
  return NoAnswer(deadline);
}

struct ProbeProcess::Run {
  CapturedRun child;
  Done done;  // empty once called
  EventLoop::TimerId timer = EventLoop::kNoTimer;
};

ProbeProcess::ProbeProcess(AsioEventLoop* loop, std::string binary, milliseconds deadline)
    : loop_(loop), binary_(std::move(binary)), deadline_(deadline) {}

ProbeProcess::~ProbeProcess() {
  if (running_ != nullptr) SignalProcess(running_->child.process, SIGKILL);
}

void ProbeProcess::Probe(Done done) {
  const auto tell = [this, &done](Status why) {
    loop_->Post([done = std::move(done), why = std::move(why)] { done(why); });
  };
  if (running_ != nullptr) return tell(NoAnswer(deadline_));
  auto child = StartProbe(binary_);
  if (!child.ok()) return tell(child.status());
  base::Fd watched(::fcntl(child->process.get(), F_DUPFD_CLOEXEC, 0));
  if (!watched) {
    const Status why = base::ErrnoError(errno, "watch mt-gpu-probe");
    SignalProcess(child->process, SIGKILL);
    if (EndsWithin(*child, kAfterKill)) ::waitpid(child->pid, nullptr, WNOHANG);
    return tell(why);
  }
  const auto run = std::make_shared<Run>(
      Run{.child = std::move(child).value(), .done = std::move(done), .timer = {}});
  running_ = run;
  run->timer = loop_->After(deadline_, [this, run] { OnDeadline(run); });
  loop_->OnReadable(std::move(watched), [this, run] { OnEnded(run); });
}

void ProbeProcess::OnEnded(const std::shared_ptr<Run>& run) {
  running_.reset();
  loop_->Cancel(run->timer);
  const auto result = Collect(run->child);
  if (const Done done = std::exchange(run->done, {})) done(result);
}

void ProbeProcess::OnDeadline(const std::shared_ptr<Run>& run) {
  SignalProcess(run->child.process, SIGKILL);
  if (const Done done = std::exchange(run->done, {})) done(NoAnswer(deadline_));
}

}  // namespace mt::node
