// A launch goes through: its shim is watched (WatchShim), the shim ends (OnShimEnded, Conclude),
// and either exit.json tells how the rank ended or the rank is watched by itself (Watch), then
// Finish.
#include "worker/node/ranks/shim_launcher.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "common/base/ids.h"
#include "common/base/log.h"
#include "worker/node/process/log_access.h"
#include "worker/node/process/process.h"
#include "worker/node/process/spawn_plan.h"

namespace mt::node {
namespace {

constexpr int kStopFd = 3;  // read end of the pipe, in the shim

// The environment of a rank, with its secret token.
std::vector<std::string> RankEnvironment(const std::string& token) {
  std::vector<std::string> environment = ChildEnvironment();
  environment.push_back("MT_RANK_TOKEN=" + token);
  return environment;
}

// Records and unsent messages of a rank are this user's alone, those of an older agent too. It lies
// in a folder that is closed already, so a failure opens nothing.
void CloseFolder(const std::string& folder) {
  if (::chmod(folder.c_str(), 0700) != 0 && errno != ENOENT) {
    log::Warn("a rank's folder keeps its permissions",
              {{"folder", folder}, {"why", std::strerror(errno)}});
  }
}

}  // namespace

ShimLauncher::ShimLauncher(AsioEventLoop* loop, Config config)
    : loop_(loop), config_(std::move(config)) {}
ShimLauncher::~ShimLauncher() = default;

std::vector<std::string> ShimLauncher::Arguments(const RankLaunch& args) const {
  const std::string rank = std::to_string(args.rank);
  const std::string epoch = std::to_string(args.epoch);
  std::vector<std::string> arguments = {config_.shim_binary,
                                        "--dir",
                                        args.folder,
                                        "--log",
                                        args.log_file,
                                        "--job",
                                        args.job_uid,
                                        "--epoch",
                                        epoch,
                                        "--rank",
                                        rank,
                                        "--slot",
                                        std::to_string(args.slot),
                                        "--grace-ms",
                                        std::to_string(config_.grace_ms)};
  if (args.stop_with_agent) {
    arguments.insert(arguments.end(), {"--stop-fd", std::to_string(kStopFd)});
  }
  if (!args.cpus.empty()) arguments.insert(arguments.end(), {"--cpus", args.cpus});
  arguments.insert(arguments.end(),
                   {"--", config_.rank_binary, "--agent-socket", config_.socket, "--node",
                    config_.node, "--job-uid", args.job_uid, "--epoch", epoch, "--rank", rank,
                    "--threads", std::to_string(args.threads), "--state-dir", args.folder});
  if (!args.gpu.empty()) arguments.insert(arguments.end(), {"--gpu", args.gpu});
  return arguments;
}

Status ShimLauncher::Start(LaunchId launch, const RankLaunch& args) {
  RETURN_IF_ERROR(base::MakeDirs(args.folder));
  CloseFolder(args.folder);
  RETURN_IF_ERROR(base::MakeDirs(std::filesystem::path(args.log_file).parent_path().string()));
  CloseLogToOthers(args.log_file);
  SpawnPlan plan;
  base::Fd read_end;
  base::Fd write_end;
  if (args.stop_with_agent) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return base::ErrnoError(errno, "pipe");
    read_end.Reset(ends[0]);
    write_end.Reset(ends[1]);
    // A dup2 of a descriptor to itself would keep its close-on-exec flag.
    if (read_end.get() == kStopFd) {
      read_end.Reset(::fcntl(read_end.get(), F_DUPFD_CLOEXEC, kStopFd + 1));
      if (!read_end) return base::ErrnoError(errno, "dup");
    }
    RETURN_IF_ERROR(plan.Give(read_end.get(), kStopFd));
  }
  ASSIGN_OR_RETURN(const pid_t pid, plan.Spawn(Arguments(args), RankEnvironment(args.token)));
  children_[launch] =
      Child{.folder = args.folder, .stop_pipe = std::move(write_end), .shim = {}, .child_pid = pid};
  return WatchShim(launch, OpenChild(pid));
}

Status ShimLauncher::Watch(const base::Fd& process, std::function<void()> ended) {
  base::Fd watched(::fcntl(process.get(), F_DUPFD_CLOEXEC, 0));
  if (!watched) return base::ErrnoError(errno, "watch a process");
  loop_->OnReadable(std::move(watched), std::move(ended));
  return OkStatus();
}

Status ShimLauncher::WatchShim(LaunchId launch, base::Fd shim) {
  Status watched = Watch(shim, [this, launch] { OnShimEnded(launch); });
  if (watched.ok()) {
    children_[launch].shim = std::move(shim);
    return OkStatus();
  }
  // There are no descriptors left; a rank that nobody watches must not run.
  const Child& child = children_[launch];
  if (child.child_pid > 0) ::kill(child.child_pid, SIGQUIT);
  children_.erase(launch);
  return watched;
}

int ShimLauncher::Adopt(LaunchId launch, const std::string& folder) {
  CloseFolder(folder);
  Child& child = children_[launch] = Child{.folder = folder};
  const auto record = ReadRankRecord(folder);
  const int pid = record.ok() ? record->pid : 0;
  const auto later = [this, launch](std::string why) {
    loop_->Post([this, launch, why = std::move(why)] { Conclude(launch, why); });
  };
  if (base::Exists(folder + "/exit.json")) {
    later("its exit.json cannot be read");
  } else if (absl::IsNotFound(record.status())) {
    AdoptUnrecorded(launch, folder);
  } else if (!record.ok()) {
    AdoptUnreadable(launch, folder, record.status());
  } else if (record->boot_id != base::BootId()) {
    child.damage = "its node was started anew";
    later("");
  } else if (base::Fd shim = OpenProcess(record->shim_pid, record->shim_start_ticks); !shim) {
    later("its mt-shim ended before it");
  } else if (const Status watched = WatchShim(launch, std::move(shim)); !watched.ok()) {
    children_[launch] = Child{.folder = folder, .damage = base::Message(watched)};
    later("");
  }
  return pid;
}

// The earlier agent has ended while it started this rank, whose shim may be about to write
// rank.json. Renaming the folder decides the race: what is not recorded by then cannot be recorded
// any more, and a shim that cannot record its rank ends it.
void ShimLauncher::AdoptUnrecorded(LaunchId launch, const std::string& folder) {
  const std::string aside = folder + ".void";
  const bool moved = ::rename(folder.c_str(), aside.c_str()) == 0;
  if (moved && base::Exists(aside + "/rank.json") && ::rename(aside.c_str(), folder.c_str()) == 0) {
    Adopt(launch, folder);
    return;
  }
  loop_->Post([this, launch] {
    Finish(launch, {.known = false, .error = "its worker agent ended before it was started"});
  });
}

void ShimLauncher::AdoptUnreadable(LaunchId launch, const std::string& folder, const Status& why) {
  Child& child = children_[launch];
  child.damage = base::Message(why);
  log::Error("a rank's record cannot be read: looking for its process to end it",
             {{"why", child.damage}});
  for (const int pid : FindByArgument("--dir", folder)) {
    base::Fd shim = OpenProcess(pid, StartTicks(pid));
    if (!shim || !WatchShim(launch, std::move(shim)).ok()) continue;
    Terminate(launch);
    return;
  }
  for (const int pid : FindByArgument("--state-dir", folder)) ::kill(-pid, SIGKILL);
  loop_->Post([this, launch] { Conclude(launch, ""); });
}

void ShimLauncher::OnShimEnded(LaunchId launch) {
  const auto found = children_.find(launch);
  if (found == children_.end()) return;
  Child& child = found->second;
  child.shim.Reset();
  std::string how = "its mt-shim ended";
  int status = 0;
  if (child.child_pid > 0 && ::waitpid(child.child_pid, &status, 0) == child.child_pid) {
    how += WIFSIGNALED(status) ? fmt::format(" (signal {})", WTERMSIG(status))
                               : fmt::format(" (exit code {})", WEXITSTATUS(status));
  }
  Conclude(launch, how + " and left no record of the exit");
}

void ShimLauncher::Conclude(LaunchId launch, const std::string& why_unknown) {
  Child& child = children_[launch];
  auto exit = ReadExitRecord(child.folder);
  if (exit.ok() && child.damage.empty()) return Finish(launch, std::move(exit).value());
  const auto record = ReadRankRecord(child.folder);
  if (record.ok() && record->boot_id == base::BootId()) {
    child.rank = OpenProcess(record->pid, record->start_ticks);
    child.rank_pid = record->pid;
  }
  const std::string why = child.damage.empty() ? why_unknown : child.damage;
  const auto gone = [this, launch, why] { Finish(launch, {.known = false, .error = why}); };
  if (!child.rank || !Watch(child.rank, gone).ok()) return gone();
  log::Warn("a rank goes on without its mt-shim: how it ends will not be known",
            {{"pid", child.rank_pid}});
  if (child.ending) Terminate(launch);
}

void ShimLauncher::Finish(LaunchId launch, RankExit exit) {
  const auto found = children_.find(launch);
  if (found == children_.end()) return;
  // Without a shim nobody else kills what the rank has left in its process group.
  if (found->second.rank) ::kill(-found->second.rank_pid, SIGKILL);
  exit.unsent = ReadUnsentFile(found->second.folder);
  children_.erase(found);
  loop_->Post([this, launch, exit = std::move(exit)] { listener_->OnRankGone(launch, exit); });
}

void ShimLauncher::Terminate(LaunchId launch) {
  const auto found = children_.find(launch);
  if (found == children_.end()) return;
  Child& child = found->second;
  child.ending = true;
  if (child.shim) SignalProcess(child.shim, SIGTERM);
  if (!child.rank) return;
  ::kill(-child.rank_pid, SIGTERM);
  loop_->After(std::chrono::milliseconds(config_.grace_ms), [this, launch] { Kill(launch); });
}

void ShimLauncher::Kill(LaunchId launch) {
  const auto found = children_.find(launch);
  if (found == children_.end()) return;
  found->second.ending = true;
  if (found->second.shim) SignalProcess(found->second.shim, SIGQUIT);
  if (found->second.rank) ::kill(-found->second.rank_pid, SIGKILL);
}

}  // namespace mt::node
