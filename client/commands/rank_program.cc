// Signals: a Ctrl-C reaches both programs from the terminal; what ends this one alone is handed on.
#include "client/commands/rank_program.h"

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <spawn.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <CLI/CLI.hpp>

#include "client/commands/checkpoint_place.h"
#include "common/base/files.h"
#include "common/control/rank_exit_codes.h"
#include "worker/checkpoint/format/directory.h"

namespace mt::client {
namespace {

StatusOr<std::string> RankProgram() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return base::ErrnoError(error.value(), "read /proc/self/exe");
  const std::string path = (self.parent_path() / "mt-rank").string();
  if (base::Exists(path)) return path;
  return base::NotFound(
      "mt-rank, which computes, is not beside mtctl (looked for {}): run mt-rank where it is "
      "installed",
      path);
}

// A folder for mt-rank: of one checkpoint, or of all of which it takes the newest.
StatusOr<std::string> FolderOf(const ReaderTarget& target, const GlobalOptions& options) {
  ASSIGN_OR_RETURN(const checkpoint::Place place, target.job.empty()
                                                      ? checkpoint::FindPlace(target.directory)
                                                      : ResolvePlace(target.job, options));
  if (!place.id) return place.directory;
  return base::JoinPath(place.directory, checkpoint::FolderName(*place.id));
}

ExitCode ExitCodeOfRank(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    if (signal == SIGPIPE) return kExitIo;
    return Complain(base::Internal("mt-rank was ended by signal {}{}", signal,
                                   signal == SIGKILL ? " (out of memory?)" : ""),
                    kExitError);
  }
  switch (WEXITSTATUS(status)) {
    case control::kExitDone:
      return kExitOk;
    case control::kExitConfig:
      return kExitInvalidInput;
    case control::kExitCheckpoint:
    case control::kExitSaveFailed:
      return kExitIo;
    case control::kExitTransient:
      return kExitInterrupted;
    default:
      return kExitServer;
  }
}

volatile std::sig_atomic_t child_pid = 0;

void EndChild(int /*signal*/) {
  if (child_pid > 0) ::kill(child_pid, SIGTERM);
}

// Runs the program with this terminal; a Ctrl-C is its own to handle, as it gets it too. What ends
// this program alone is handed on.
ExitCode RunProgram(std::vector<std::string> argv) {
  std::vector<char*> args;
  args.reserve(argv.size() + 1);
  for (std::string& argument : argv) args.push_back(argument.data());
  args.push_back(nullptr);
  struct sigaction ignore {
  }, old{};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGINT, &ignore, &old);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGINT);
  ::posix_spawnattr_setsigdefault(&attributes, &defaults);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int error = ::posix_spawn(&child, args[0], nullptr, &attributes, args.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  if (error == 0) {
    child_pid = child;
    struct sigaction end {};
    end.sa_handler = EndChild;
    ::sigaction(SIGTERM, &end, nullptr);
    ::sigaction(SIGHUP, &end, nullptr);
  }
  int status = 0;
  while (error == 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  child_pid = 0;  // from here on it may be another's
  ::sigaction(SIGINT, &old, nullptr);
  if (error != 0) return Complain(base::ErrnoError(error, "start " + argv[0]));
  return ExitCodeOfRank(status);
}

}  // namespace

void AddReaderTarget(CLI::App* command, ReaderTarget* target) {
  auto* const job = command->add_option(
      "job", target->job,
      "A job, JOB:STEP or JOB:TAG, or a folder: a directory of checkpoints, of which the newest is "
      "taken, or one of them");
  command->add_option("--dir", target->directory, "Such a folder, never a job")->excludes(job);
}

ExitCode RunReader(const ReaderTarget& target, const std::string& flag,
                   std::vector<std::string> arguments, const GlobalOptions& options) {
  if (target.job.empty() && target.directory.empty())
    return Complain(base::InvalidArgument("a job or --dir is wanted: what is read"), kExitUsage);
  const auto program = RankProgram();
  if (!program.ok()) return Complain(program.status());
  const auto folder = FolderOf(target, options);
  if (!folder.ok()) return Complain(folder.status());
  std::vector<std::string> argv = {*program, flag + "=" + *folder};
  for (std::string& argument : arguments) argv.push_back(std::move(argument));
  return RunProgram(std::move(argv));
}

}  // namespace mt::client
