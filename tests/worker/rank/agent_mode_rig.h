// The real mt-rank under a fake agent: a small job, its process, and commands to it.
#pragma once

#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/spec/parse.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"
#include "tests/worker/data/temp_data.h"
#include "tests/worker/rank/test_agent.h"

namespace mt::rank {

class AgentModeTest : public testing::Test {
 protected:
  using AgentMessage = megatrain::v1::AgentMessage;
  using Command = megatrain::v1::Command;
  using CommandDone = megatrain::v1::CommandDone;
  using JobSpec = megatrain::v1::JobSpec;
  using RankMessage = megatrain::v1::RankMessage;

  AgentModeTest() {
    std::filesystem::create_directories(state_dir_);
    std::filesystem::create_directories(dir_.Path("checkpoints"));  // no rank makes it
  }
  ~AgentModeTest() override {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  static JobSpec Job(const std::vector<std::string>& overrides) {
    constexpr char kText[] = R"(
name: tiny
model: {layers: 1, hidden_size: 16, heads: 2, seq_length: 16}
data: {mock: true, tokenizer: {type: byte}}
parallel: {data: 1}
training: {train_iters: 200, micro_batch_size: 2, global_batch_size: 2}
optimizer: {lr: 1.0e-3}
checkpoint: {at_end: false}
placement: {device: cpu, threads_per_rank: 1}
)";
    JobSpec job;
    const spec::Faults faults = spec::LoadJob(kText, overrides, {}, &job);
    EXPECT_TRUE(faults.empty()) << spec::FormatFaults(faults);
    return job;
  }
  static bool IsState(const RankMessage& message, megatrain::v1::RankState state) {
    return message.has_state() && message.state().state() == state;
  }

  TestAgent::Options Assign(const JobSpec& job, bool hold = false, bool acknowledge = true) const {
    TestAgent::Options options{.acknowledge = acknowledge};
    auto& assignment = options.assignment;
    *assignment.mutable_spec() = job;
    assignment.set_world_size(1);
    assignment.set_threads(1);
    assignment.set_data_root(dir_.path());
    assignment.set_checkpoint_root(dir_.Path("checkpoints"));
    assignment.set_address("127.0.0.1");
    assignment.set_hold(hold);
    return options;
  }
  void Start(int64_t epoch = 1) {
    std::vector<std::string> args = {MT_RANK_BINARY,        "--agent-socket", "unix:" + socket_,
                                     "--job-uid",           "job-1",          "--epoch",
                                     std::to_string(epoch), "--rank",         "0",
                                     "--state-dir",         state_dir_};
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, dir_.Path("err").c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0644);
    EXPECT_EQ(posix_spawn(&pid_, MT_RANK_BINARY, &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  int Wait() {
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  static AgentMessage Order(const std::string& id, Command::Verb verb) {
    AgentMessage message;
    message.mutable_word()->set_command_id(id);
    message.mutable_word()->set_verb(verb);
    return message;
  }
  // Sends the command and waits until it is done; notes the steps heard meanwhile.
  CommandDone Do(TestAgent* agent, const AgentMessage& command) {
    agent->Say(command);
    return agent
        ->Await([this, &command](const RankMessage& message) {
          if (message.has_step()) last_step_ = message.step().step();
          return message.has_command_done() &&
                 message.command_done().command_id() == command.word().command_id();
        })
        .command_done();
  }
  std::string UnsentPath() const { return base::JoinPath(state_dir_, "unsent.pb"); }

  data::TempDir dir_;
  const std::string socket_ = dir_.Path("s");
  const std::string state_dir_ = dir_.Path("state");
  pid_t pid_ = 0;
  int64_t last_step_ = 0;
};

}  // namespace mt::rank
