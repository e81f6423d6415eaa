// Options set by other programs are hidden from --help.
#include "worker/rank/options.h"

#include <cstdio>
#include <filesystem>

#include <CLI/CLI.hpp>

#include "common/control/rank_exit_codes.h"
#include "common/rpc/version.h"

namespace mt::rank {
namespace {

CLI::Option* AddCheckBlas(CLI::App* app, Options* options) {
  return app->add_flag("--check-blas", options->check_blas,
                       "Train nothing: multiply small matrices, say whether OpenBLAS computes "
                       "rightly on this processor, and exit with 71 where it does not");
}

CLI::Option* AddTrace(CLI::App* app, Options* options) {
  return app->add_option("--trace", options->trace_file,
                         "Write a Chrome trace of the first measured steps of all ranks to this "
                         "file (Perfetto and chrome://tracing show it)");
}

void AddOptions(CLI::App* app, Options* options) {
  auto* standalone = app->add_option("--standalone", options->job_file,
                                     "Job file to train alone, without daemons");
  auto* set = app->add_option("--set", options->overrides, "FIELD=VALUE, over the job file")
                  ->expected(1)
                  ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  auto* data = app->add_option("--data-root", options->data_root, "Token files lie below it [.]");
  auto* checkpoints = app->add_option("--checkpoint-root", options->checkpoint_root,
                                      "Checkpoints lie below it [./checkpoints]");
  auto* cache = app->add_option("--cache-root", options->cache_root,
                                "Index caches lie below it [none: kept in memory]");
  auto* logs = app->add_option("--log-root", options->log_root,
                               "Logs go to LOG_ROOT/NAME/rank-RRRRR.log [stderr]");
  auto* metrics = app->add_option("--metrics-file", options->metrics_file,
                                  "Steps, evaluations and checkpoints are appended as JSON lines");
  auto* ranks = app->add_option("--ranks", options->num_ranks, "Processes [as the job says]")
                    ->check(CLI::Range(1, 4096));
  auto* bench = app->add_flag("--bench", options->bench,
                              "Run the job file as a benchmark and print its report: bench.warmup "
                              "and bench.steps steps, no evaluation, no checkpoints");
  auto* trace = AddTrace(app, options)->needs(bench);
  auto* restart = app->add_flag("--restart", options->restart,
                                "Begin another run, whatever checkpoints there are: they stay")
                      ->excludes(bench);
  for (CLI::Option* option :
       {set, data, checkpoints, cache, logs, metrics, ranks, bench, trace, restart}) {
    option->needs(standalone);
  }
  auto* check_blas = AddCheckBlas(app, options)->excludes(standalone);
  const char* internal = "";  // an empty group hides options from --help
  auto* rendezvous =
      app->add_option("--rendezvous", options->rendezvous)->group(internal)->needs(standalone);
  auto* socket = app->add_option("--agent-socket", options->agent_socket)
                     ->group(internal)
                     ->excludes(standalone)
                     ->excludes(check_blas);
  app->add_flag("--tcp-only", options->tcp_only)->group(internal)->needs(standalone);
  app->add_option("--rank", options->rank)->group(internal)->check(CLI::NonNegativeNumber);
  app->add_option("--gpu", options->gpu)->group(internal);
  app->add_option("--host-delay-ms", options->host_delay_ms)
      ->group(internal)
      ->needs(standalone)
      ->check(CLI::Range(0, 60'000));
  for (CLI::Option* option :
       {app->add_option("--node", options->node), app->add_option("--job-uid", options->job_uid),
        app->add_option("--epoch", options->epoch), app->add_option("--threads", options->threads),
        app->add_option("--state-dir", options->state_dir)}) {
    option->group(internal)->needs(socket);
  }
  app->callback([=] {
    if (standalone->count() + socket->count() + check_blas->count() == 0) {
      throw CLI::RequiredError("--standalone JOB.yaml (under a worker, mt-worker starts mt-rank)");
    }
    options->mode = check_blas->count() > 0   ? Mode::kCheckBlas
                    : socket->count() > 0     ? Mode::kAgent
                    : rendezvous->count() > 0 ? Mode::kMember
                                              : Mode::kStandalone;
  });
  app->set_version_flag("--version", std::string(rpc::Version()));
}

void MakeAbsolute(std::string* path) {
  if (!path->empty()) *path = std::filesystem::absolute(*path).lexically_normal().string();
}

}  // namespace

bool ParseOptions(int argc, char** argv, Options* options, int* exit_code) {
  CLI::App app("mt-rank: one rank of a training job; alone with --standalone.");
  app.footer(
      "mt-rank --generate DIR writes text from a checkpoint; mt-rank --generate DIR --help says "
      "how.");
  AddOptions(&app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    *exit_code = app.exit(error) == 0 ? 0 : control::kExitConfig;
    return false;
  }
  if (options->data_root.empty()) options->data_root = ".";
  if (options->checkpoint_root.empty()) options->checkpoint_root = "checkpoints";
  for (std::string* path :
       {&options->data_root, &options->checkpoint_root, &options->cache_root, &options->log_root,
        &options->metrics_file, &options->trace_file, &options->rendezvous, &options->state_dir}) {
    MakeAbsolute(path);
  }
  return true;
}

}  // namespace mt::rank
