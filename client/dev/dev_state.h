// What `mtctl dev` keeps of its cluster in dev.json: its two processes and the settings with which
// they were started, which the next `dev up` takes over.
#pragma once

#include <optional>
#include <string>

#include "client/dev/process.h"
#include "common/base/status.h"

namespace mt::client {

// Flags of `dev up`; one that is not given keeps the value of before.
struct DevUpArgs {
  std::optional<int> cpu_slots;                // in addition to the GPUs of this machine
  std::optional<std::string> gpus;             // value of mt-worker's --gpus
  std::optional<std::string> data_root;        // relative to the current directory
  std::optional<std::string> checkpoint_root;  // likewise
};

// With what the worker is started. Roots are absolute.
struct DevSettings {
  int cpu_slots = 4;
  std::string gpus = "all";
  std::string data_root, checkpoint_root, log_root;
};

struct DevState {
  ProcessId coordinator, worker;
  std::string endpoint;     // "127.0.0.1:41234"
  std::string worker_http;  // HTTP address that serves /metrics, /livez, /readyz
  DevSettings settings;
};

// nullopt where the file is missing, kDataLoss where it is damaged.
StatusOr<std::optional<DevState>> ReadDevState(const std::string& path);
Status WriteDevState(const std::string& path, const DevState& state);

// The settings with the flags that are given in place of what they name.
DevSettings WithFlags(DevSettings settings, const DevUpArgs& args);
// "--cpu-slots 2 --data-root /data": each of `settings` that is not as in `other`; "": none.
std::string DifferingFlags(const DevSettings& settings, const DevSettings& other);

}  // namespace mt::client
