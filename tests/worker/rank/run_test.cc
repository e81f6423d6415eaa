// Whole runs of the real mt-rank, standalone, on a small data set: the same curve with any number
// of processes, the same bits in a rerun and after kill -9 and resume, and one clear message for a
// job that cannot run.
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <map>
#include <spawn.h>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/worker/data/temp_data.h"

namespace mt::rank {
namespace {

using nlohmann::json;

constexpr char kJob[] = R"(
name: tiny
model: {layers: 2, hidden_size: 32, heads: 2, seq_length: 32, hidden_dropout: 0.1, attention_dropout: 0.1}
data: {path: [text_document], split: "8,1,1", tokenizer: {type: byte}}
training: {train_iters: 20, micro_batch_size: 2, global_batch_size: 8}
optimizer: {lr: 1.0e-3, warmup: 5}
placement: {device: cpu, threads_per_rank: 1}
checkpoint: {directory: none}
)";

struct StepValues {
  double loss = 0;
  double grad_norm = 0;
  bool operator==(const StepValues&) const = default;
};
using Curve = std::map<int64_t, StepValues>;

class RunTest : public testing::Test {
 protected:
  RunTest() {
    data::WriteText(dir_.Path("job.yaml"), kJob);
    // Text with something to learn: each document repeats a few letters of its own.
    data::WriteDataset(dir_.Path("text_document"), std::vector<int32_t>(60, 90),
                       data::TokenType::kU16, [](int64_t i, int64_t t) {
                         return t == 89 ? 256 : static_cast<int32_t>(97 + (i * 7 + t * t) % 13);
                       });
  }

  ~RunTest() override {
    if (running_ <= 0) return;
    ::kill(running_, SIGKILL);
    ::waitpid(running_, nullptr, 0);
  }

  struct Outcome {
    int code = 0;  // exit code, or 128 + signal
    std::string err;
  };
  pid_t Start(std::vector<std::string> args, const std::string& name) {
    args.insert(args.begin(), {MT_RANK_BINARY, "--standalone", dir_.Path("job.yaml"), "--data-root",
                               dir_.path(), "--metrics-file", dir_.Path(name + ".jsonl")});
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, dir_.Path(name + ".err").c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0644);
    pid_t pid = 0;
    EXPECT_EQ(posix_spawn(&pid, MT_RANK_BINARY, &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    running_ = pid;
    return pid;
  }
  Outcome Wait(pid_t pid, const std::string& name) {
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    running_ = 0;
    return {.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
            .err = data::ReadText(dir_.Path(name + ".err"))};
  }
  Outcome Run(const std::vector<std::string>& args, const std::string& name) {
    return Wait(Start(args, name), name);
  }
  std::vector<json> Records(const std::string& name, const std::string& kind) const {
    std::istringstream lines(data::ReadText(dir_.Path(name + ".jsonl")));
    std::vector<json> records;
    for (std::string line; std::getline(lines, line);) {
      json record = json::parse(line, nullptr, false);  // the last line of a killed run may be cut
      if (record.is_object() && record["kind"] == kind) records.push_back(std::move(record));
    }
    return records;
  }
  Curve CurveOf(const std::string& name) const {
    Curve curve;
    for (const json& record : Records(name, "step")) {
      curve[record["step"]] = {record["loss"], record["grad_norm"]};
    }
    return curve;
  }
  // Trains and returns the curve.
  Curve Train(const std::vector<std::string>& args, const std::string& name) {
    const Outcome outcome = Run(args, name);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return CurveOf(name);
  }
  static void ExpectClose(const Curve& a, const Curve& b, double loss_bound, double norm_bound) {
    ASSERT_EQ(a.size(), 20u);
    ASSERT_EQ(b.size(), 20u);
    for (const auto& [step, values] : a) {
      EXPECT_LE(std::abs(values.loss - b.at(step).loss), loss_bound * values.loss) << step;
      EXPECT_LE(std::abs(values.grad_norm - b.at(step).grad_norm), norm_bound * values.grad_norm)
          << step;
    }
  }
  void ExpectLayoutFree(const std::string& precision, double loss_bound, double norm_bound) {
    const std::string set = "training.precision=" + precision;
    const Curve one = Train({"--set", set}, "one");
    const Curve two = Train({"--set", set, "--ranks", "2"}, "two");
    const Curve four = Train({"--set", set, "--ranks", "4"}, "four");
    ExpectClose(one, two, loss_bound, norm_bound);
    ExpectClose(one, four, loss_bound, norm_bound);
    EXPECT_LT(one.at(20).loss, one.at(1).loss);  // it learns
    EXPECT_EQ(Train({"--set", set, "--ranks", "2"}, "again"), two);
  }

  const data::TempDir dir_;
  pid_t running_ = 0;  // that a failed test has left; one at a time
};

TEST_F(RunTest, Fp64CurveDoesNotDependOnTheProcesses) { ExpectLayoutFree("fp64", 1e-12, 1e-12); }
TEST_F(RunTest, Fp32CurveDoesNotDependOnTheProcesses) { ExpectLayoutFree("fp32", 2e-6, 3e-5); }

TEST_F(RunTest, KilledAndResumedIsTheSameToTheLastBit) {
  const std::vector<std::string> common = {"--ranks",
                                           "2",
                                           "--set",
                                           "training.train_iters=100",
                                           "--set",
                                           "checkpoint.every_iters=50",
                                           "--set",
                                           "checkpoint.directory=run",
                                           "--checkpoint-root"};
  auto with_root = [&common, this](const std::string& root) {
    std::vector<std::string> args = common;
    args.push_back(dir_.Path(root));
    return args;
  };
  const Curve straight = Train(with_root("a"), "straight");
  ASSERT_EQ(straight.size(), 100u);
  const pid_t pid = Start(with_root("b"), "killed");
  while (Records("killed", "checkpoint").empty()) ::usleep(2000);
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  EXPECT_EQ(Wait(pid, "killed").code, 128 + SIGKILL);
  const Curve resumed = Train(with_root("b"), "resumed");
  EXPECT_EQ(Records("resumed", "run").at(0)["resumed_from_step"], 50);
  EXPECT_EQ(Records("resumed", "run").at(0)["epoch"], 2);
  ASSERT_EQ(resumed.size(), 50u);
  for (const auto& [step, values] : resumed) EXPECT_EQ(values, straight.at(step)) << step;
}

TEST_F(RunTest, ARestartBeginsAnotherRunAndLeavesTheFirst) {
  const std::vector<std::string> common = {
      "--ranks", "2", "--set", "checkpoint.directory=run", "--checkpoint-root", dir_.Path("e")};
  const Curve first = Train(common, "first");
  std::vector<std::string> args = common;
  args.emplace_back("--restart");
  EXPECT_EQ(Train(args, "second"), first) << "from its first step";
  const json runs = json::parse(data::ReadText(dir_.Path("e/run/run.json")))["runs"];
  ASSERT_EQ(runs.size(), 2u) << runs;
  EXPECT_EQ(runs[0].value("restart", ""), "");
  EXPECT_EQ(runs[1].value("restart", "").size(), 36u);
  EXPECT_NE(runs[0]["id"], runs[1]["id"]);
  args.emplace_back("--bench");
  EXPECT_EQ(Run(args, "both").code, 64);
}

TEST_F(RunTest, SigtermSavesAndStops) {
  const pid_t pid = Start({"--ranks", "2", "--set", "training.train_iters=1000000", "--set",
                           "checkpoint.directory=run", "--checkpoint-root", dir_.Path("c")},
                          "stopped");
  while (Records("stopped", "step").size() < 3) ::usleep(2000);
  ASSERT_EQ(::kill(pid, SIGTERM), 0);
  const Outcome outcome = Wait(pid, "stopped");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  ASSERT_EQ(Records("stopped", "checkpoint").size(), 1u);
  EXPECT_EQ(Records("stopped", "checkpoint")[0]["step"], Records("stopped", "step").back()["step"]);
}

TEST_F(RunTest, AKilledRankEndsTheRunAndIsNamed) {
  const pid_t pid = Start({"--ranks", "3", "--set", "training.global_batch_size=6", "--set",
                           "training.train_iters=1000000"},
                          "killed");
  while (Records("killed", "step").empty()) ::usleep(2000);
  const std::string children =
      data::ReadText("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children");
  std::istringstream list(children);
  std::vector<pid_t> members;
  for (pid_t child = 0; list >> child;) members.push_back(child);
  ASSERT_EQ(members.size(), 3u);
  ASSERT_EQ(::kill(members[1], SIGKILL), 0);
  const Outcome outcome = Wait(pid, "killed");
  EXPECT_EQ(outcome.code, 128 + SIGKILL);
  EXPECT_NE(outcome.err.find("mt-rank: rank 1 was killed by signal 9"), std::string::npos)
      << outcome.err;
  for (const pid_t member : members) EXPECT_NE(::kill(member, 0), 0) << member;
}

struct BadInput {
  std::vector<std::string> args;
  std::string message;  // a part of the one line
};

TEST_F(RunTest, WhatCannotRunIsSaidOnce) {
  data::WriteText(dir_.Path("cut_document.idx"),
                  data::ReadText(dir_.Path("text_document.idx")).substr(0, 20));
  data::WriteText(dir_.Path("cut_document.bin"), data::ReadText(dir_.Path("text_document.bin")));
  const BadInput inputs[] = {
      {{"--set", "model.layerz=3"}, "model.layerz: unknown field; did you mean layers?"},
      {{"--set", "optimizer.lr=abc"}, "optimizer.lr: "},
      {{"--set", "training.global_batch_size=7", "--ranks", "2"}, "training.global_batch_size: 7"},
      {{"--set", "data.path=[missing]"}, "missing.idx: no such file"},
      {{"--set", "data.path=[missing]", "--ranks", "2"}, "missing.idx: no such file"},
      {{"--set", "data.path=[cut_document]"}, "cut_document.idx"},
      {{"--set", "data.path=[../up]"}, "../up"},
      {{"--ranks", "2", "--set", "parallel.data=4"}, "placement.slots"},
      {{"--restart"}, "--restart: the job saves no checkpoints"},
  };
  for (const BadInput& input : inputs) {
    const Outcome outcome = Run(input.args, "bad");
    EXPECT_EQ(outcome.code, 64) << input.message << "\n" << outcome.err;
    int said = 0;
    std::istringstream lines(outcome.err);
    for (std::string line; std::getline(lines, line);) said += line.rfind("mt-rank: ", 0) == 0;
    EXPECT_EQ(said, 1) << outcome.err;
    EXPECT_NE(outcome.err.find(input.message), std::string::npos) << outcome.err;
  }
}

TEST_F(RunTest, ACheckpointOfAnotherModelIsRefusedWithBothValues) {
  const std::vector<std::string> common = {"--set", "checkpoint.directory=run", "--checkpoint-root",
                                           dir_.Path("d")};
  Train(common, "first");
  std::vector<std::string> other = common;
  other.insert(other.end(), {"--set", "model.layers=3"});
  const Outcome outcome = Run(other, "second");
  EXPECT_EQ(outcome.code, 64);
  EXPECT_NE(outcome.err.find("model.layers: checkpoint has 2, job has 3"), std::string::npos)
      << outcome.err;
}

TEST_F(RunTest, WhatWouldBeatTheProgramsOwnSettingsIsClearedAndSaid) {
  ::setenv("NCCL_MAX_CTAS", "3", 1);  // NOLINT(concurrency-mt-unsafe): no threads here
  const Outcome outcome = Run({}, "cleared");
  ::unsetenv("NCCL_MAX_CTAS");  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("NCCL_MAX_CTAS=3"), std::string::npos) << outcome.err;
}

// Whatever this host has, CUDA is shown no GPU.
class NoGpuTest : public RunTest {
 protected:
  NoGpuTest() {
    std::string job = kJob;
    const std::string placement = "placement: {device: cpu, threads_per_rank: 1}\n";
    job.replace(job.find(placement), placement.size(), "");
    data::WriteText(dir_.Path("job.yaml"), job);
    ::setenv("CUDA_VISIBLE_DEVICES", "", 1);  // NOLINT(concurrency-mt-unsafe): no threads here
  }
  ~NoGpuTest() override { ::unsetenv("CUDA_VISIBLE_DEVICES"); }  // NOLINT(concurrency-mt-unsafe)
};

TEST_F(NoGpuTest, AJobThatLeavesTheDeviceOpenTrainsOnTheCpuAndSaysWhy) {
  const Outcome outcome = Run({}, "open");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(Records("open", "step").size(), 20u);
  const size_t at = outcome.err.find("training on the CPU");
  ASSERT_NE(at, std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("CUDA backend: no ", at), std::string::npos) << outcome.err;
}

TEST_F(NoGpuTest, AJobForAGpuIsRefused) {
  const Outcome outcome = Run({"--set", "placement.device=gpu"}, "gpu");
  if (outcome.err.find("libmt_cuda.so") != std::string::npos) {
    EXPECT_EQ(outcome.code, 64) << "no module is installed: " << outcome.err;
  } else {
    EXPECT_EQ(outcome.code, 71) << outcome.err;
    EXPECT_NE(outcome.err.find("cudaGetDeviceCount"), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("placement.device: cpu"), std::string::npos) << outcome.err;
  }
  EXPECT_TRUE(Records("gpu", "step").empty());
}

}  // namespace
}  // namespace mt::rank
