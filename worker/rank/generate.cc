// A command line of its own: no flag of a rank has a meaning here.
#include "worker/rank/generate.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "common/base/plain_text.h"
#include "kernels/ops/backend.h"
#include "worker/decode/generate_command.h"
#include "worker/node/shim/rank_exit_codes.h"
#include "worker/rank/outcome.h"
#include "worker/rank/stop_signals.h"

namespace mt::rank {
namespace {

Status Generate(decode::GenerateArgs args) {
  std::atomic<bool> asked = false, generates = false;
  args.interrupted = [&] {
    generates = true;
    return asked.load();
  };
  const StopSignals signals([&](int count) {
    if (count > 1 || !generates) std::_Exit(node::kExitTransient);
    asked = true;
  });
  try {
    return decode::RunGenerate(args);
  } catch (const kernels::DeviceError& error) {
    return base::Error(absl::StatusCode::kInternal, "{}", error.what());
  }
}

}  // namespace

bool AsksToGenerate(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--generate" || argument.starts_with("--generate=")) return true;
  }
  return false;
}

int RunGenerate(int argc, char** argv) {
  CLI::App app("mt-rank --generate: text from a checkpoint, on the CPU, without daemons.");
  decode::GenerateArgs args{.out = stdout, .terminal = ::isatty(STDOUT_FILENO) == 1};
  app.add_option("--generate", args.path, "A directory of checkpoints, or one of them")->required();
  decode::AddGenerateFlags(&app, &args.flags);
  app.add_flag("--json", args.flags.json,
               "Prompts, ids, texts, timings and the checkpoint as JSON");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : node::kExitConfig;
  }
  const Status status = Generate(std::move(args));
  if (status.ok()) return node::kExitDone;
  if (absl::IsCancelled(status)) return node::kExitTransient;
  std::fprintf(stderr, "mt-rank: %s\n", base::CleanText(base::Message(status)).c_str());
  return ExitCodeOf(status);
}

}  // namespace mt::rank
