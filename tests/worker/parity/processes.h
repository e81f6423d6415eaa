// Ranks as processes: a standalone mt-rank starts one member per rank; they train over Gloo and
// report their curve in a metrics file.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

namespace mt::parity {

struct ProcessArgs {
  std::string job_file;
  std::vector<std::string> overrides;
  int world = 1;
  std::string root;    // data lies in data/, checkpoints in checkpoints/
  std::string prefix;  // of the run's own files: PREFIX.jsonl, PREFIX.err
};

class RankProcesses {
 public:
  // Reports a program that cannot be started.
  explicit RankProcesses(const ProcessArgs& args);
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;
  // Kills what still runs.
  ~RankProcesses();

  // Exit code of the first process, or 128 + signal.
  int Wait();
  // Pids of the ranks, in no order.
  std::vector<pid_t> Members() const;
  // What has been written so far.
  std::string Metrics() const;
  std::string Errors() const;

 private:
  const std::string prefix_;
  pid_t pid_ = 0;  // 0: ended
};

}  // namespace mt::parity
