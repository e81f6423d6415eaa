// Options of mt-worker: flags, and a YAML file (--config) with the same names in snake_case; flags
// override the file. `mt-worker stop-ranks` and `mt-worker join` are the only other verbs.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/control/numbers.h"
#include "common/rpc/endpoint.h"

namespace mt::node {

struct AgentOptions {
  bool stop_ranks = false;  // the verb stop-ranks; only `state` is used
  std::string join;         // the verb join: the cluster's id; only `state` is used
  rpc::Endpoint coordinator;
  std::optional<int> cpu_slots;  // nullopt: DefaultCpuSlots (gpu_offer.h)
  std::string gpus = "all";      // GPUs to offer: "all", "none", or UUIDs separated by commas
  int cores = 1;                 // cores that this process may use
  std::string node;
  std::string address = "127.0.0.1";
  std::map<std::string, std::string> labels;  // node labels
  // Where /metrics and the probes are served; nullopt: nowhere. If the address was not asked for, a
  // taken port does not prevent the start.
  std::optional<rpc::Endpoint> http_listen;
  bool http_asked = false;
  bool insecure = false;  // permits plain text beyond this machine
  // Absolute paths.
  std::string state;
  std::string data_root;
  std::string checkpoint_root;
  bool own_checkpoint_root =
      false;  // it was not given and lies in `state`: a folder of the agent's
  std::string log_root;
  std::string cache_root;
  int64_t cache_limit = int64_t{16} << 30;  // bytes below cache_root
  std::string rank_binary;
  std::string shim_binary;
  std::string probe_binary;
  int stall_after =
      static_cast<int>(control::kStepLimit.count());  // seconds (ProgressLimits::step)
  int frozen_after =
      static_cast<int>(std::chrono::duration_cast<control::seconds>(control::kRankBeatFrozenAfter)
                           .count());  // seconds (ProgressLimits::frozen)
  log::Level log_level = log::Level::kInfo;
};

// The exit code of a program that ends after parsing its options: 0 after --help, --version and
// --check-config, 64 for bad options. The text was printed.
struct ExitNow {
  int code = 0;
};

// Parses a node label such as "zone=a": the name matches [a-zA-Z0-9._/-]{1,63}, the value too or is
// empty. kInvalidArgument.
StatusOr<std::pair<std::string, std::string>> ParseLabel(std::string_view text);

// Parses command line and file. True if `options` is filled in; otherwise `exit_now` is.
bool ParseAgentOptions(int argc, char** argv, AgentOptions* options, ExitNow* exit_now);

}  // namespace mt::node
