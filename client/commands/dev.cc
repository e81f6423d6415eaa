// `mtctl dev up|down|status`: runs a coordinator and a worker on this machine.
#include <cstdio>
#include <memory>
#include <set>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "client/commands/commands.h"
#include "client/commands/purge.h"
#include "client/commands/verb.h"
#include "client/dev/dev_cluster.h"
#include "common/base/files.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

DevCluster Cluster() { return DevCluster(base::JoinPath(StateFolder(), "dev")); }

std::string SettingsText(const DevSettings& settings) {
  return fmt::format("CPU slots {}, GPUs {}, data root {}, checkpoints {}, logs {}",
                     settings.cpu_slots, settings.gpus, settings.data_root,
                     settings.checkpoint_root, settings.log_root);
}

std::string SettingsLines(const DevSettings& settings) {
  return fmt::format(
      "CPU slots   {}\nGPUs        {}\ndata root   {}\ncheckpoints {}\nlogs        {}\n",
      settings.cpu_slots, settings.gpus, settings.data_root, settings.checkpoint_root,
      settings.log_root);
}

nlohmann::ordered_json SettingsTree(const DevSettings& settings) {
  return {{"cpu_slots", settings.cpu_slots},
          {"gpus", settings.gpus},
          {"data_root", settings.data_root},
          {"checkpoint_root", settings.checkpoint_root},
          {"log_root", settings.log_root}};
}

ExitCode RunUp(const DevUpArgs& args, const GlobalOptions& options) {
  DevFound found;
  const auto state = Cluster().Up(args, &found);
  if (!state.ok()) return Complain(state.status());
  const char* what = "up";
  if (found.coordinator && found.worker) {
    what = "already up";
  } else if (found.coordinator) {
    what = "up again (the worker was started, the coordinator ran)";
  } else if (found.worker) {
    what = "up again (the coordinator was started, the worker and its ranks ran)";
  }
  if (options.output == OutputFormat::kName) return PrintText(state->endpoint + "\n");
  if (!IsTable(options.output)) {
    nlohmann::ordered_json out = {{"endpoint", state->endpoint},
                                  {"coordinator_ran", found.coordinator},
                                  {"worker_ran", found.worker}};
    out.update(SettingsTree(state->settings));
    return PrintText(RenderTree(out, options.output));
  }
  std::printf("%s: coordinator at %s, %s\n", what, state->endpoint.c_str(),
              SettingsText(state->settings).c_str());
  std::fprintf(stderr, "mtctl finds it by itself; stop it with: mtctl dev down\n");
  return kExitOk;
}

StatusOr<std::set<std::string>> KnownJobs(const DevCluster& cluster) {
  ASSIGN_OR_RETURN(const auto found, cluster.Read());
  const DevState state = found.value_or(DevState());
  if (!IsAlive(state.coordinator)) return base::Unavailable("the coordinator does not run");
  ASSIGN_OR_RETURN(const rpc::Endpoint address, rpc::ParseEndpoint(state.endpoint));
  ASSIGN_OR_RETURN(const auto api, Api::Connect(address, control::kClientRequest));
  return AllJobUids(*api);
}

ExitCode RunDown(bool purge, bool yes, const GlobalOptions& options) {
  DevCluster cluster = Cluster();
  ExitCode code = kExitOk;
  if (purge && !Confirmed(yes,
                          "Stop the cluster and remove every job's history, logs and caches? "
                          "Checkpoints stay.",
                          &code)) {
    return code;
  }
  // Asked while there is somebody to ask.
  StatusOr<std::set<std::string>> uids = base::Unavailable("not asked");
  if (purge) uids = KnownJobs(cluster);
  const Status down = cluster.Down();
  if (!down.ok() && !(purge && absl::IsNotFound(down))) return Complain(down);
  const bool table = IsTable(options.output);
  if (down.ok() && table) std::printf("down\n");
  nlohmann::ordered_json out = {{"stopped", down.ok()}, {"purged", nullptr}};
  if (!purge) return PrintText(RenderTree(out, options.output));
  const auto purged = cluster.Purge();
  if (!purged.ok()) return Complain(purged.status());
  if (table) {
    std::printf("removed %s; checkpoints stay: %s in %s\n", FormatBytes(purged->bytes).c_str(),
                FormatBytes(purged->checkpoint_bytes).c_str(), purged->checkpoint_root.c_str());
  }
  if (uids.ok()) {
    ReleaseFences(purged->checkpoint_root, *uids);
  } else if (purged->bytes > 0) {
    std::fprintf(stderr,
                 "the coordinator did not run, so its jobs still hold their directories there: to "
                 "train on in one, remove its file FENCE\n");
  }
  out["purged"] = {{"bytes", purged->bytes},
                   {"checkpoint_bytes", purged->checkpoint_bytes},
                   {"checkpoint_root", purged->checkpoint_root}};
  return PrintText(RenderTree(out, options.output));
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
    nlohmann::ordered_json out = {{"coordinator", coordinator},
                                  {"worker", worker},
                                  {"endpoint", endpoint},
                                  {"coordinator_http", coordinator_http},
                                  {"worker_http", worker_http}};
    out.update(SettingsTree(known.settings));
    printed = PrintText(RenderTree(out, options.output));
  } else if (options.output == OutputFormat::kName) {
    printed = PrintText(endpoint + "\n");
  } else if (options.output != OutputFormat::kNone) {
    printed = PrintText(fmt::format("coordinator {}{}\nworker      {}{}\n{}",
                                    coordinator ? "running at " + endpoint : "not running",
                                    MetricsText(coordinator_http),
                                    worker ? "running" : "not running", MetricsText(worker_http),
                                    state->has_value() ? SettingsLines(known.settings) : ""));
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
  up->add_option("--cpu-slots", args->cpu_slots,
                 "CPU slots to offer, beside the GPUs (default: as the last time, at first 4)")
      ->check(CLI::Range(0, 1024));
  up->add_option("--gpus", args->gpus,
                 "GPUs to offer: all, none, or UUIDs with commas (default: as the last time, at "
                 "first all)");
  up->add_option("--data-root", args->data_root,
                 "Folder that jobs' data paths are relative to (default: as the last time, at "
                 "first this one)");
  up->add_option("--checkpoint-root", args->checkpoint_root,
                 "Folder for checkpoints (default: as the last time, at first below the state "
                 "folder)");
  up->callback([=, run = context.run, options = context.options] {
    *run = [=] { return RunUp(*args, *options); };
  });
  CLI::App* down = command->add_subcommand("down", "Stop them and every job that runs there");
  auto purge = std::make_shared<bool>(false);
  auto yes = std::make_shared<bool>(false);
  down->add_flag("--purge", *purge,
                 "Remove jobs' histories, logs and caches, and forget the settings; checkpoints "
                 "stay");
  AddYesFlag(down, yes.get());
  down->callback([=, run = context.run, options = context.options] {
    *run = [=] { return RunDown(*purge, *yes, *options); };
  });
  CLI::App* status = command->add_subcommand("status", "Whether they run; exit code 1 if not");
  status->callback([run = context.run, options = context.options] {
    *run = [=] { return RunStatus(*options); };
  });
}

}  // namespace mt::client
