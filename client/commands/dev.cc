// `mtctl dev up|down|status`: runs a coordinator and a worker on this machine.
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "client/commands/commands.h"
#include "client/dev/dev_cluster.h"
#include "common/base/files.h"
#include "megatrain/v1/api.pb.h"

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

// The coordinator's HTTP address as it reports it; "" where it has none or does not answer.
std::string CoordinatorHttp(const std::string& endpoint) {
  const auto address = rpc::ParseEndpoint(endpoint);
  if (!address.ok()) return "";
  const auto api = Api::Connect(*address, control::kClientRequest);
  if (!api.ok()) return "";
  const auto info = (*api)->GetInfo();
  return info.ok() ? info->http_endpoint() : "";
}

std::string MetricsText(const std::string& http) {
  return http.empty() ? "" : fmt::format(", metrics at http://{}/metrics", http);
}

ExitCode RunStatus(const GlobalOptions& options) {
  const auto state = Cluster().Read();
  if (!state.ok()) return Complain(state.status());
  const DevState known = state->value_or(DevState());
  const bool coordinator = IsAlive(known.coordinator);
  const bool worker = IsAlive(known.worker);
  const std::string& endpoint = known.endpoint;
  const std::string coordinator_http = coordinator ? CoordinatorHttp(endpoint) : "";
  const std::string worker_http = worker ? known.worker_http : "";
  ExitCode printed = kExitOk;
  if (IsStructured(options.output)) {
    const nlohmann::ordered_json out = {{"coordinator", coordinator},
                                        {"worker", worker},
                                        {"endpoint", endpoint},
                                        {"coordinator_http", coordinator_http},
                                        {"worker_http", worker_http}};
    printed = PrintText(RenderTree(out, options.output));
  } else if (options.output == OutputFormat::kName) {
    printed = PrintText(endpoint + "\n");
  } else if (options.output != OutputFormat::kNone) {
    printed = PrintText(fmt::format("coordinator {}{}\nworker      {}{}\n",
                                    coordinator ? "running at " + endpoint : "not running",
                                    MetricsText(coordinator_http),
                                    worker ? "running" : "not running", MetricsText(worker_http)));
  }
  if (printed != kExitOk) return printed;
  return coordinator && worker ? kExitOk : kExitError;
}

}  // namespace

void AddDev(const CommandContext& context) {
  CLI::App* command =
      context.app->add_subcommand("dev", "A coordinator and a worker on this machine")
          ->require_subcommand(1);
  auto args = std::make_shared<DevUpArgs>();
  CLI::App* up = command->add_subcommand("up", "Start them");
  up->add_option("--cpu-slots", args->cpu_slots, "CPU slots to offer, beside the GPUs")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  up->add_option("--gpus", args->gpus, "GPUs to offer: all, none, or UUIDs with commas")
      ->capture_default_str();
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
