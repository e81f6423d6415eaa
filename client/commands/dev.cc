// `mtctl dev up|down|status`: a whole cluster on this machine.
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "client/commands/commands.h"
#include "client/dev/dev_cluster.h"
#include "common/base/files.h"

namespace mt::client {
namespace {

DevCluster Cluster() { return DevCluster(base::JoinPath(StateFolder(), "dev")); }

ExitCode RunUp(const DevUpArgs& args) {
  bool already = false;
  const auto state = Cluster().Up(args, &already);
  if (!state.ok()) return Complain(state.status());
  std::printf("%s: coordinator at %s, data root %s, checkpoints %s, logs %s\n",
              already ? "already up" : "up", state->endpoint.c_str(), state->data_root.c_str(),
              state->checkpoint_root.c_str(), state->log_root.c_str());
  std::fprintf(stderr, "mtctl finds it by itself; stop it with: mtctl dev down\n");
  return kExitOk;
}

ExitCode RunStatus(const GlobalOptions& options) {
  const auto state = Cluster().Read();
  if (!state.ok()) return Complain(state.status());
  const DevState known = state->value_or(DevState());
  const bool coordinator = IsAlive(known.coordinator);
  const bool worker = IsAlive(known.worker);
  const std::string& endpoint = known.endpoint;
  const std::string http = worker ? known.worker_http : "";
  if (IsStructured(options.output)) {
    const nlohmann::ordered_json out = {{"coordinator", coordinator},
                                        {"worker", worker},
                                        {"endpoint", endpoint},
                                        {"worker_http", http}};
    std::fputs(RenderTree(out, options.output).c_str(), stdout);
  } else if (options.output == OutputFormat::kName) {
    std::printf("%s\n", endpoint.c_str());
  } else if (options.output != OutputFormat::kNone) {
    std::printf("coordinator %s\nworker      %s%s\n",
                coordinator ? ("running at " + endpoint).c_str() : "not running",
                worker ? "running" : "not running",
                http.empty() ? "" : (", metrics at http://" + http + "/metrics").c_str());
  }
  return coordinator && worker ? kExitOk : kExitError;
}

}  // namespace

void AddDev(const CommandContext& context) {
  CLI::App* command =
      context.app->add_subcommand("dev", "A coordinator and a worker on this machine")
          ->require_subcommand(1);
  auto args = std::make_shared<DevUpArgs>();
  CLI::App* up = command->add_subcommand("up", "Start them");
  up->add_option("--cpu-slots", args->cpu_slots, "CPU slots to offer (default: cores)")
      ->check(CLI::Range(1, 1024));
  up->add_option("--data-root", args->data_root,
                 "Folder that jobs' data paths are relative to (default: this one)");
  up->add_option("--checkpoint-root", args->checkpoint_root,
                 "Folder for checkpoints (default: below the state folder)");
  up->callback([=, run = context.run] { *run = [=] { return RunUp(*args); }; });
  CLI::App* down = command->add_subcommand("down", "Stop them and every job that runs there");
  down->callback([run = context.run] {
    *run = [] {
      const Status status = Cluster().Down();
      if (!status.ok()) return Complain(status);
      std::printf("down\n");
      return kExitOk;
    };
  });
  CLI::App* status = command->add_subcommand("status", "Whether they run; exit code 1 if not");
  status->callback([run = context.run, options = context.options] {
    *run = [=] { return RunStatus(*options); };
  });
}

}  // namespace mt::client
