// Command line of mt-rank: alone (--standalone), one process of a standalone run (--rank and
// --rendezvous, set by the first), or under an agent (--agent-socket, set by mt-worker).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mt::rank {

enum class Mode { kStandalone, kMember, kAgent };

struct Options {
  Mode mode = Mode::kStandalone;
  // Standalone
  std::string job_file;
  std::vector<std::string> overrides;  // --set
  std::string data_root;               // absolute, as all folders
  std::string checkpoint_root;
  std::string cache_root;    // empty: indices are kept in memory
  std::string log_root;      // empty: stderr
  std::string metrics_file;  // empty: none
  int num_ranks = 0;         // 0: as the job says
  bool bench = false;        // the job file as a benchmark, whatever its kind
  // One process of several
  std::string rendezvous;  // folder
  int rank = 0;
  std::string gpu;        // UUID of the GPU that the rank was given; empty: the first, if any
  int host_delay_ms = 0;  // before each step: benchmarks of how far the host runs ahead
  // Under an agent
  std::string agent_socket;
  std::string job_uid;
  int64_t epoch = 0;
  int threads = 0;        // 0: as the job says
  std::string state_dir;  // of this rank, kept by the agent; empty: none
};

// True where `options` is filled in; else the text was printed and *exit_code is to be returned.
bool ParseOptions(int argc, char** argv, Options* options, int* exit_code);

}  // namespace mt::rank
