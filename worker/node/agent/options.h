// AgentOptions of mt-worker: flags, and a YAML file (--config) with the same names in snake_case;
// flags win. `mt-worker stop-ranks` is the one other verb.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/rpc/control_numbers.h"
#include "common/rpc/endpoint.h"

namespace mt::node {

struct AgentOptions {
  bool stop_ranks = false;  // end what an agent has left, instead of being one; only `state` counts
  rpc::Endpoint coordinator;
  std::optional<int> cpu_slots;  // nullopt: as the GPUs that are found suggest
  std::string gpus = "all";      // which to offer: "all", "none", or UUIDs with commas
  int cores = 1;                 // that this process may use
  std::string node;
  std::string address = "127.0.0.1";
  std::map<std::string, std::string> labels;  // of this node
  // Of /metrics and probes; nullopt: none. Where it was not asked for, a port that is taken is no
  // reason not to start.
  std::optional<rpc::Endpoint> http_listen;
  bool http_asked = false;
  bool insecure = false;  // plain text beyond this machine is wanted
  // Folders, absolute.
  std::string state;
  std::string data_root;
  std::string checkpoint_root;
  std::string log_root;
  std::string cache_root;
  std::string rank_binary;
  std::string shim_binary;
  std::string probe_binary;
  int stall_after = static_cast<int>(rpc::kStepLimit.count());  // seconds (ProgressLimits::step)
  log::Level log_level = log::Level::kInfo;
};

// Where the program ends before it begins: --help, --version, --check-config (0) and bad options
// (64). The text was printed.
struct ExitNow {
  int code = 0;
};

// "zone=a": the name [a-zA-Z0-9._/-]{1,63}, the value the same or empty.
StatusOr<std::pair<std::string, std::string>> ParseLabel(std::string_view text);

// True where `options` is filled in; else `exit_now` is.
bool ParseAgentOptions(int argc, char** argv, AgentOptions* options, ExitNow* exit_now);

}  // namespace mt::node
