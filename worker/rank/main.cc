// mt-rank: the process of one rank of a training job (README.md). Chooses between the three modes:
// standalone, member of a standalone run, under an agent; or it reads a checkpoint or checks the
// BLAS, and is no rank.
#include <cstdio>

#include "worker/rank/check_blas.h"
#include "worker/rank/environment.h"
#include "worker/rank/members.h"
#include "worker/rank/options.h"
#include "worker/rank/outcome.h"
#include "worker/rank/reader.h"
#include "worker/rank/standalone.h"
#include "worker/rank/stop_signals.h"
#include "worker/rank/under_agent.h"

// NOLINTNEXTLINE(bugprone-exception-escape): only out of memory throws here, and ends the program.
int main(int argc, char** argv) {
  const bool reads = mt::rank::AsksToRead(argc, argv);
  mt::rank::Options options;
  int exit_code = 0;
  if (!reads && !mt::rank::ParseOptions(argc, argv, &options, &exit_code)) return exit_code;
  // As the agent that asks: with the core type that OpenBLAS takes by itself.
  if (options.mode == mt::rank::Mode::kCheckBlas) return mt::rank::RunCheckBlas();
  // The job is not read yet, so a standalone run may use a GPU.
  const bool may_use_gpu =
      !reads && (!options.gpu.empty() || options.mode == mt::rank::Mode::kStandalone);
  const mt::Status status = mt::rank::ApplyEnvironment(may_use_gpu, options.node, argv);
  if (!status.ok()) {
    std::fprintf(stderr, "mt-rank: %s\n", mt::base::Message(status).c_str());
    return mt::rank::ExitCodeOf(status);
  }
  mt::rank::BlockStopSignals();
  if (reads) return mt::rank::RunReader(argc, argv);
  switch (options.mode) {
    case mt::rank::Mode::kStandalone:
      return mt::rank::RunStandalone(options, argc, argv);
    case mt::rank::Mode::kMember:
      mt::rank::DieWithParent();
      return mt::rank::RunMember(options);
    case mt::rank::Mode::kAgent:
      return mt::rank::RunUnderAgent(options);
    case mt::rank::Mode::kCheckBlas:
      break;
  }
  return 0;
}
