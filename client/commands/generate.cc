// `mtctl generate`: finds the checkpoint and has mt-rank, which has the engine, write text from it.
// The job is not touched, and needs not run.
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <memory>
#include <spawn.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "client/commands/checkpoint_place.h"
#include "client/commands/commands.h"
#include "common/base/files.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/decode/generate_flags.h"
#include "worker/node/shim/rank_exit_codes.h"

namespace mt::client {
namespace {

struct GenerateVerb {
  std::string job;
  decode::GenerateFlags flags;
};

StatusOr<std::string> RankProgram() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return base::ErrnoError(error.value(), "read /proc/self/exe");
  const std::string path = (self.parent_path() / "mt-rank").string();
  if (base::Exists(path)) return path;
  return base::NotFound(
      "mt-rank, which computes, is not beside mtctl (looked for {}): run mt-rank --generate where "
      "it is installed",
      path);
}

// A folder for mt-rank: of one checkpoint, or of all of which it takes the newest.
StatusOr<std::string> FolderOf(const GenerateVerb& verb, const GlobalOptions& options) {
  ASSIGN_OR_RETURN(const checkpoint::Place place, ResolvePlace(verb.job, options));
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
    case node::kExitDone:
      return kExitOk;
    case node::kExitConfig:
      return kExitInvalidInput;
    case node::kExitCheckpoint:
      return kExitIo;
    case node::kExitTransient:
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

ExitCode RunGenerate(const GenerateVerb& verb, const GlobalOptions& options) {
  decode::GenerateFlags flags = verb.flags;
  flags.json = options.output == OutputFormat::kJson;
  if (!flags.json && !IsTable(options.output))
    return Complain(base::InvalidArgument("generate writes text, or JSON with -o json"),
                    kExitUsage);
  const auto program = RankProgram();
  if (!program.ok()) return Complain(program.status());
  const auto folder = FolderOf(verb, options);
  if (!folder.ok()) return Complain(folder.status());
  std::vector<std::string> argv = {*program, "--generate=" + *folder};
  for (std::string& argument : decode::ToArguments(flags)) argv.push_back(std::move(argument));
  return RunProgram(std::move(argv));
}

}  // namespace

void AddGenerate(const CommandContext& context) {
  CLI::App* command = context.app->add_subcommand(
      "generate", "Text from a job's checkpoint, while it trains or afterwards; takes no slot");
  auto verb = std::make_shared<GenerateVerb>();
  command
      ->add_option("job", verb->job,
                   "A job, JOB:STEP or JOB:TAG, or a folder: a directory of checkpoints, of which "
                   "the newest is taken, or one of them")
      ->required();
  decode::AddGenerateFlags(command, &verb->flags);
  command->callback([=, options = context.options, run = context.run] {
    *run = [=] { return RunGenerate(*verb, *options); };
  });
}

}  // namespace mt::client
