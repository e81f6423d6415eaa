// Command lines of their own: no flag of a rank has a meaning here.
#include "worker/rank/reader.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "common/base/plain_text.h"
#include "kernels/ops/backend.h"
#include "worker/decode/generate_command.h"
#include "worker/decode/scores/eval_command.h"
#include "worker/node/shim/rank_exit_codes.h"
#include "worker/rank/outcome.h"
#include "worker/rank/stop_signals.h"

namespace mt::rank {
namespace {

bool Has(int argc, char** argv, const std::string& flag) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == flag || argument.starts_with(flag + "=")) return true;
  }
  return false;
}

using Interrupted = std::function<bool()>;

// Runs `read`, which a signal interrupts; before it asks for the first time, the signal ends the
// program. Returns the exit code.
int Read(const std::function<Status(const Interrupted&)>& read) {
  std::atomic<bool> asked = false, reads = false;
  const Interrupted interrupted = [&] {
    reads = true;
    return asked.load();
  };
  const StopSignals signals([&](int count) {
    if (count > 1 || !reads) std::_Exit(node::kExitTransient);
    asked = true;
  });
  Status status;
  try {
    status = read(interrupted);
  } catch (const kernels::DeviceError& error) {
    status = base::Error(absl::StatusCode::kInternal, "{}", error.what());
  }
  if (status.ok()) return node::kExitDone;
  if (absl::IsCancelled(status)) return node::kExitTransient;
  std::fprintf(stderr, "mt-rank: %s\n", base::CleanText(base::Message(status)).c_str());
  return ExitCodeOf(status);
}

// True where the program goes on; else *code is how it ends.
bool Parse(CLI::App* app, int argc, char** argv, int* code) {
  try {
    app->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    *code = app->exit(error) == 0 ? 0 : node::kExitConfig;
    return false;
  }
  return true;
}

constexpr const char* kPathHelp = "A directory of checkpoints, or one of them";

int RunGenerate(int argc, char** argv) {
  CLI::App app("mt-rank --generate: text from a checkpoint, without daemons.");
  decode::GenerateArgs args{.out = stdout, .terminal = ::isatty(STDOUT_FILENO) == 1};
  app.add_option("--generate", args.path, kPathHelp)->required();
  decode::AddGenerateFlags(&app, &args.flags);
  app.add_flag("--json", args.flags.json,
               "Prompts, ids, texts, timings and the checkpoint as JSON");
  int code = 0;
  if (!Parse(&app, argc, argv, &code)) return code;
  return Read([&](const Interrupted& interrupted) {
    args.interrupted = interrupted;
    return decode::RunGenerate(args);
  });
}

int RunEval(int argc, char** argv) {
  CLI::App app("mt-rank --eval: scores of a checkpoint, without daemons.");
  const char* const terminal = std::getenv("TERM");  // NOLINT(concurrency-mt-unsafe): one thread
  decode::EvalArgs args{.out = stdout,
                        .terminal = ::isatty(STDOUT_FILENO) == 1,
                        .live = ::isatty(STDERR_FILENO) == 1 && terminal != nullptr &&
                                std::string_view(terminal) != "dumb"};
  app.add_option("--eval", args.path, kPathHelp)->required();
  decode::AddEvalFlags(&app, &args.flags);
  app.add_flag("--json", args.flags.json, "Tasks, scores, timings and the checkpoint as JSON");
  int code = 0;
  if (!Parse(&app, argc, argv, &code)) return code;
  return Read([&](const Interrupted& interrupted) {
    args.interrupted = interrupted;
    return decode::RunEval(args);
  });
}

}  // namespace

bool AsksToRead(int argc, char** argv) {
  return Has(argc, argv, "--generate") || Has(argc, argv, "--eval");
}

int RunReader(int argc, char** argv) {
  return Has(argc, argv, "--generate") ? RunGenerate(argc, argv) : RunEval(argc, argv);
}

}  // namespace mt::rank
