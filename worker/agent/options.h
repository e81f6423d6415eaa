// Options of mt-worker: flags, and a YAML file (--config) with the same names in snake_case; flags
// win.
#pragma once

#include <string>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/rpc/endpoint.h"

namespace mt::agent {

struct Options {
  rpc::Endpoint coordinator;
  int cpu_slots = 0;  // set: at least 1
  int cores = 1;      // that this process may use
  std::string node;
  std::string address = "127.0.0.1";
  // Folders, absolute.
  std::string state;
  std::string data_root;
  std::string checkpoint_root;
  std::string log_root;
  std::string cache_root;
  std::string rank_binary;
  std::string shim_binary;
  log::Level log_level = log::Level::kInfo;
};

// Where the program ends before it begins: --help and --version (0) and bad options (64). The text
// was printed.
struct ExitNow {
  int code = 0;
};

// True where `options` is filled in; else `exit_now` is.
bool ParseOptions(int argc, char** argv, Options* options, ExitNow* exit_now);

}  // namespace mt::agent
