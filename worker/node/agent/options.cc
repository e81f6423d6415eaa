// CLI11 parses flags; entries of the YAML file become flags before them, so both share names,
// checks and messages.
#include "worker/node/agent/options.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sched.h>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>
#include <yaml-cpp/yaml.h>

#include "common/base/files.h"
#include "common/base/plain_text.h"
#include "common/control/rank_exit_codes.h"
#include "common/rpc/version.h"
#include "worker/node/gpus/gpu_offer.h"

namespace mt::node {
namespace {

constexpr uint16_t kDefaultHttpPort = 7072;

// The options as text, before paths are made absolute and defaults are filled in.
struct RawOptions {
  std::string config;
  std::string coordinator = rpc::Endpoint{}.ToString();
  std::string log_level = "info";
  std::string http_listen = rpc::Endpoint{.port = kDefaultHttpPort}.ToString();
  std::vector<std::string> labels;
  bool check_config = false;
  const CLI::Option* http_option = nullptr;
};

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before threads start
  return value == nullptr ? "" : value;
}

int UsableCores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

std::string HostName() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

std::string DefaultState() {
  const std::string state = FromEnvironment("XDG_STATE_HOME");
  if (!state.empty() && state.front() == '/') return state + "/megatrain/worker";
  return base::JoinPath(FromEnvironment("HOME"), ".local/state/megatrain/worker");
}

std::string RefuseMinus(std::string& text) {
  return text.starts_with('-') ? "must not be negative" : "";
}

void AddSubcommands(CLI::App* app, AgentOptions* options) {
  app->add_subcommand("stop-ranks",
                      "End all ranks that the agent of --state has left running, then exit")
      ->fallthrough()
      ->callback([options] { options->stop_ranks = true; });
  app->add_subcommand("join",
                      "Have the agent of --state belong to another cluster from its next start on")
      ->fallthrough()
      ->add_option("cluster", options->join, "Its id, as `mtctl version` shows it")
      ->required();
}

void AddOptions(CLI::App* app, RawOptions* raw, AgentOptions* options) {
  AddSubcommands(app, options);
  const auto take_last = CLI::MultiOptionPolicy::TakeLast;
  app->option_defaults()->multi_option_policy(take_last);
  app->add_option("--config", raw->config, "YAML file with these options (cpu_slots: 2)");
  app->add_option("--coordinator", raw->coordinator, "HOST:PORT")->capture_default_str();
  app->add_option("--cpu-slots", options->cpu_slots,
                  "CPU slots to offer [none beside GPUs, else cores]")
      ->check(CLI::Range(0, 4096));
  app->add_option("--gpus", options->gpus, "GPUs to offer: all, none, or UUIDs with commas")
      ->capture_default_str();
  app->add_option("--node", options->node, "Name of this node [host name]");
  app->add_option("--address", options->address, "Host that other ranks reach this node's ranks by")
      ->capture_default_str();
  app->add_option("--state", options->state,
                  "Folder of the agent [$XDG_STATE_HOME/megatrain/worker]");
  app->add_option("--data-root", options->data_root, "Token files lie below it [.]");
  app->add_option("--checkpoint-root", options->checkpoint_root,
                  "Checkpoints lie below it; it must be there [STATE/checkpoints]");
  app->add_option("--log-root", options->log_root, "Rank logs lie below it [STATE/logs]");
  app->add_option("--cache-root", options->cache_root, "Index caches lie below it [STATE/cache]");
  app->add_option("--cache-limit", options->cache_limit,
                  "Bytes of caches to keep, such as 4GiB; the longest unused go first")
      ->transform(CLI::AsSizeValue(true))
      ->transform(CLI::Validator(RefuseMinus, ""))  // before the conversion, which wraps around
      ->default_str("16GiB");
  app->add_option("--rank-binary", options->rank_binary, "mt-rank [beside this program]");
  app->add_option("--shim-binary", options->shim_binary, "mt-shim [beside this program]");
  app->add_option("--probe-binary", options->probe_binary, "mt-gpu-probe [beside this program]");
  app->add_option("--label", raw->labels,
                  "NAME=VALUE of this node, for jobs that select; repeatable")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  raw->http_option = app->add_option("--http-listen", raw->http_listen,
                                     "HOST:PORT of /metrics, /livez, /readyz, or none")
                         ->capture_default_str();
  app->add_option(
         "--stall-after", options->stall_after,
         "Seconds without progress after which a training rank is reported, or 5 times the "
         "p99 of its steps")
      ->capture_default_str()
      ->check(CLI::Range(1, 86'400));
  // Not below three beats (L9): one may be late.
  app->add_option("--frozen-after", options->frozen_after,
                  "Seconds without a beat after which a rank is reported as frozen or starved")
      ->capture_default_str()
      ->check(CLI::Range(3, 86'400));
  app->add_flag("--insecure", options->insecure,
                "Allow --address and --http-listen beyond this machine, in plain text");
  app->add_flag("--check-config", raw->check_config, "Check the options and end");
  app->add_option("--log-level", raw->log_level, "debug, info, warn or error")
      ->capture_default_str()
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
  app->set_version_flag("--version", std::string(rpc::Version()));
}

// Converts the file's entries to flags, which are parsed before those of the command line.
StatusOr<std::vector<std::string>> ReadConfig(const CLI::App& app, const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path));
  std::vector<std::string> args;
  try {
    const YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return args;
    if (!root.IsMap()) return base::InvalidArgument("{}: must be a map of options", path);
    for (const auto& entry : root) {
      const auto key = entry.first.as<std::string>();
      std::string flag = "--" + key;
      std::replace(flag.begin(), flag.end(), '_', '-');
      const bool known = app.get_option_no_throw(flag) != nullptr && flag != "--config" &&
                         flag != "--version" && flag != "--help" && flag != "--check-config";
      if (!known) return base::InvalidArgument("{}: unknown option {}", path, key);
      const bool many = flag == "--label" && entry.second.IsSequence();
      if (flag == "--gpus" && entry.second.IsSequence()) {
        args.push_back(
            flag + "=" +
            fmt::format("{}", fmt::join(entry.second.as<std::vector<std::string>>(), ",")));
        continue;
      }
      if (!entry.second.IsScalar() && !many)
        return base::InvalidArgument("{}: {} needs one value", path, key);
      if (!many) args.push_back(flag + "=" + entry.second.as<std::string>());
      for (size_t i = 0; many && i < entry.second.size(); ++i) {
        args.push_back(flag + "=" + entry.second[i].as<std::string>());
      }
    }
  } catch (const YAML::Exception& error) {
    return base::InvalidArgument("{}: {}", path, error.what());
  }
  return args;
}

Status CheckLoopback(const char* flag, const rpc::Endpoint& endpoint, const AgentOptions& options) {
  if (options.insecure || rpc::IsLoopback(endpoint)) return OkStatus();
  return base::InvalidArgument(
      "{} {} can be reached from other machines, in plain text and by anyone; give --insecure if "
      "the network may be trusted",
      flag, endpoint.host);
}

Status CompleteNetwork(const RawOptions& raw, AgentOptions* options) {
  ASSIGN_OR_RETURN(options->coordinator, rpc::ParseEndpoint(raw.coordinator));
  RETURN_IF_ERROR(CheckLoopback("--address", {.host = options->address}, *options));
  options->http_asked = raw.http_option->count() > 0;
  if (raw.http_listen == "none") return OkStatus();
  ASSIGN_OR_RETURN(const rpc::Endpoint listen,
                   rpc::ParseEndpoint(raw.http_listen, kDefaultHttpPort));
  if (!listen.unix_path.empty()) {
    return base::InvalidArgument("--http-listen {}: must be HOST:PORT", raw.http_listen);
  }
  RETURN_IF_ERROR(CheckLoopback("--http-listen", listen, *options));
  options->http_listen = listen;
  return OkStatus();
}

Status Complete(const RawOptions& raw, AgentOptions* options) {
  RETURN_IF_ERROR(CompleteNetwork(raw, options));
  for (const std::string& text : raw.labels) {
    ASSIGN_OR_RETURN(const auto label, ParseLabel(text));
    options->labels[label.first] = label.second;
  }
  options->cores = UsableCores();
  RETURN_IF_ERROR(CheckGpusOption(options->gpus));
  if (options->cpu_slots == 0 && options->gpus == "none")
    return base::InvalidArgument("--cpu-slots 0 --gpus none: nothing would be offered");
  if (options->node.empty()) options->node = HostName();
  RETURN_IF_ERROR(base::CheckName("--node: a node's name", options->node, base::kMaxNodeNameBytes));
  if (options->state.empty()) options->state = DefaultState();
  const auto fill = [options](std::string* path, const char* below_state) {
    if (path->empty()) *path = base::JoinPath(options->state, below_state);
  };
  if (options->data_root.empty()) options->data_root = ".";
  options->own_checkpoint_root = options->checkpoint_root.empty();
  fill(&options->checkpoint_root, "checkpoints");
  fill(&options->log_root, "logs");
  fill(&options->cache_root, "cache");
  const std::string own = std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
  if (options->rank_binary.empty()) options->rank_binary = base::JoinPath(own, "mt-rank");
  if (options->shim_binary.empty()) options->shim_binary = base::JoinPath(own, "mt-shim");
  if (options->probe_binary.empty()) options->probe_binary = base::JoinPath(own, "mt-gpu-probe");
  for (std::string* path : {&options->state, &options->data_root, &options->checkpoint_root,
                            &options->log_root, &options->cache_root, &options->rank_binary,
                            &options->shim_binary, &options->probe_binary}) {
    *path = std::filesystem::absolute(*path).lexically_normal().string();
  }
  for (const std::string& binary : {options->rank_binary, options->shim_binary}) {
    if (options->stop_ranks || !options->join.empty()) break;
    if (::access(binary.c_str(), X_OK) != 0) return base::ErrnoError(errno, binary);
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::pair<std::string, std::string>> ParseLabel(std::string_view text) {
  const auto is_label = [](std::string_view part) {
    return part.size() <= 63 && std::all_of(part.begin(), part.end(), [](char c) {
             return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '.' || c == '_' || c == '/' || c == '-';
           });
  };
  const size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? "" : text.substr(equals + 1);
  if (equals == std::string_view::npos || name.empty() || !is_label(name) || !is_label(value)) {
    return base::InvalidArgument(
        "--label {}: must be NAME=VALUE of letters, digits and . _ / -, at most 63 each", text);
  }
  return std::pair(std::string(name), std::string(value));
}

bool ParseAgentOptions(int argc, char** argv, AgentOptions* options, ExitNow* exit_now) {
  CLI::App app("mt-worker: offers this node's slots to a coordinator and runs ranks on them.");
  RawOptions raw;
  AddOptions(&app, &raw, options);
  Status status;
  try {
    std::vector<std::string> args(argv + 1, argv + argc);
    app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
    if (!raw.config.empty()) {
      auto from_file = ReadConfig(app, raw.config);
      status = from_file.status();
      if (from_file.ok()) {
        from_file->insert(from_file->end(), args.begin(), args.end());
        app.parse(std::vector<std::string>(from_file->rbegin(), from_file->rend()));
      }
    }
  } catch (const CLI::ParseError& error) {
    exit_now->code = app.exit(error) == 0 ? 0 : control::kExitConfig;
    return false;
  }
  if (status.ok()) status = Complete(raw, options);
  if (!status.ok()) {
    std::fprintf(stderr, "mt-worker: %s\n", base::Message(status).c_str());
    exit_now->code = control::kExitConfig;
    return false;
  }
  log::ParseLevel(raw.log_level, &options->log_level);
  if (raw.check_config) exit_now->code = 0;
  return !raw.check_config;
}

}  // namespace mt::node
