// Command line of mt-rank in its modes: standalone (--standalone), one process of a
// standalone run (--rank and --rendezvous, set by the first process), under an agent
// (--agent-socket, set by mt-worker); or a look at the processor (--check-blas).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mt::rank {

enum class Mode { kStandalone, kMember, kAgent, kCheckBlas };

struct Options {
  Mode mode = Mode::kStandalone;
  bool check_blas = false;  // Mode::kCheckBlas
  // Standalone
  std::string job_file;
  std::vector<std::string> overrides;  // --set
  std::string data_root;               // absolute, as all paths here
  std::string checkpoint_root;
  std::string cache_root;    // empty: sample indices stay in memory
  std::string log_root;      // empty: stderr
  std::string metrics_file;  // empty: none
  int num_ranks = 0;         // 0: the job's number
  bool bench = false;        // run the job as a benchmark, whatever its kind
  std::string trace_file;    // of its trace; empty: none
  bool restart = false;      // begin another run
  bool tcp_only = false;     // the ranks share no memory, to compare
  // One process of several
  std::string rendezvous;  // folder shared by the processes
  int rank = 0;
  std::string gpu;        // UUID of the assigned GPU; empty: that of the rank's number, if any
  int host_delay_ms = 0;  // sleep before each step, to test how far the host runs ahead
  // Under an agent
  std::string agent_socket;
  std::string node;  // the agent's name in the cluster
  std::string job_uid;
  int64_t epoch = 0;
  int threads = 0;        // CPU threads; 0: the job's number
  std::string state_dir;  // of this rank, kept by the agent; empty: none
};

// Parses the command line. True if `options` is filled in; otherwise help or an error was printed
// and the program must return *exit_code.
bool ParseOptions(int argc, char** argv, Options* options, int* exit_code);

}  // namespace mt::rank
