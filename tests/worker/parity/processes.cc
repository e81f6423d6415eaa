// Starts mt-rank with posix_spawn, waits for it, and finds its members in /proc.
#include "tests/worker/parity/processes.h"

#include <csignal>
#include <fcntl.h>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/base/files.h"

namespace mt::parity {

RankProcesses::RankProcesses(const ProcessArgs& args) : prefix_(args.prefix) {
  std::vector<std::string> words = {MT_RANK_BINARY,
                                    "--standalone",
                                    args.job_file,
                                    "--ranks",
                                    std::to_string(args.world),
                                    "--data-root",
                                    base::JoinPath(args.root, "data"),
                                    "--checkpoint-root",
                                    base::JoinPath(args.root, "checkpoints"),
                                    "--metrics-file",
                                    prefix_ + ".jsonl"};
  for (const std::string& field : args.overrides) words.insert(words.end(), {"--set", field});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 2, (prefix_ + ".err").c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0644);
  EXPECT_EQ(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0)
      << MT_RANK_BINARY;
  posix_spawn_file_actions_destroy(&actions);
}

RankProcesses::~RankProcesses() {
  if (pid_ == 0) return;
  ::kill(pid_, SIGKILL);  // its members end with it
  Wait();
}

int RankProcesses::Wait() {
  int status = 0;
  if (pid_ == 0 || ::waitpid(pid_, &status, 0) != pid_) return -1;
  pid_ = 0;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::vector<pid_t> RankProcesses::Members() const {
  std::istringstream children(
      base::ReadFile(fmt::format("/proc/{0}/task/{0}/children", pid_)).value_or(""));
  std::vector<pid_t> pids;
  for (pid_t pid = 0; children >> pid;) pids.push_back(pid);
  return pids;
}

std::string RankProcesses::Metrics() const {
  return base::ReadFile(prefix_ + ".jsonl").value_or("");
}

std::string RankProcesses::Errors() const { return base::ReadFile(prefix_ + ".err").value_or(""); }

}  // namespace mt::parity
