// Ranks are found by their folders: through rank.json, or, if that cannot be read, by the command
// line of their shim.
#include "worker/node/ranks/stop_ranks.h"

#include <algorithm>
#include <csignal>
#include <poll.h>
#include <unistd.h>
#include <utility>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "worker/node/process/process.h"
#include "worker/node/ranks/allocation_dir.h"
#include "worker/node/ranks/rank_record.h"

namespace mt::node {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// A shim kills its rank after its own grace; this is the additional time to record the exit.
constexpr milliseconds kShimsOwnTime{2000};
constexpr milliseconds kGoneAfterKill{5000};

struct Running {
  StoppedRank rank;
  std::string folder;
  base::Fd process;  // the rank; the shim if only that is known or left
  base::Fd shim;     // empty if it has ended
};

// Signals by pid, because a pidfd cannot signal a process group; the pid is not reused while the
// process exists.
void SignalGroup(const Running& running, int signal_number) {
  if (running.rank.pid > 0) ::kill(-running.rank.pid, signal_number);
}

base::Fd Duplicate(const base::Fd& fd) { return base::Fd(::dup(fd.get())); }

Running Open(const std::string& folder, StoppedRank rank) {
  Running running{.rank = std::move(rank), .folder = folder, .process = {}, .shim = {}};
  const auto record = ReadRankRecord(folder);
  if (record.ok() && record->boot_id == base::BootId()) {
    running.process = OpenProcess(record->pid, record->start_ticks);
    running.shim = OpenProcess(record->shim_pid, record->shim_start_ticks);
    if (running.process) running.rank.pid = record->pid;
  } else if (!record.ok()) {
    for (const int pid : FindByArgument("--dir", folder)) {
      running.shim = OpenProcess(pid, StartTicks(pid));
    }
  }
  if (!running.process && running.shim) running.process = Duplicate(running.shim);
  return running;
}

std::vector<Running> FindRunning(const std::string& allocations) {
  std::vector<Running> all;
  for (const RankPlace& place : ListRankFolders(allocations)) {
    Running running =
        Open(place.folder, {.job_uid = place.job_uid, .epoch = place.epoch, .rank = place.rank});
    if (running.process) all.push_back(std::move(running));
  }
  return all;
}

bool Ended(const base::Fd& process, Clock::time_point until) {
  if (!process) return true;
  const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now()).count();
  struct pollfd poll_fd {
    .fd = process.get(), .events = POLLIN, .revents = 0
  };
  return ::poll(&poll_fd, 1, static_cast<int>(std::max<int64_t>(0, left))) == 1;
}

}  // namespace

StatusOr<std::vector<StoppedRank>> StopRanks(const std::string& allocations, milliseconds grace) {
  std::vector<Running> all = FindRunning(allocations);
  for (const Running& running : all) {
    if (running.shim) {
      SignalProcess(running.shim, SIGTERM);
    } else {
      SignalGroup(running, SIGTERM);
    }
  }
  const auto kill_at = Clock::now() + grace + kShimsOwnTime;
  for (Running& running : all) {
    if (Ended(running.process, kill_at)) continue;
    running.rank.killed = true;
    if (running.shim) SignalProcess(running.shim, SIGQUIT);
    SignalGroup(running, SIGKILL);
  }
  const auto give_up_at = std::max(kill_at, Clock::now()) + kGoneAfterKill;
  std::vector<StoppedRank> stopped;
  for (Running& running : all) {
    if (!Ended(running.process, give_up_at) || !Ended(running.shim, give_up_at)) {
      return base::Error(absl::StatusCode::kDeadlineExceeded,
                         "process {} of rank {} of job {} does not end", running.rank.pid,
                         running.rank.rank, running.rank.job_uid);
    }
    const auto exit = ReadExitRecord(running.folder);
    if (exit.ok()) running.rank.killed = exit->signal == SIGKILL;
    stopped.push_back(std::move(running.rank));
  }
  return stopped;
}

}  // namespace mt::node
