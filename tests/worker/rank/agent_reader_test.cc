// The real mt-rank under an agent, of jobs that read a checkpoint, and of one that others read.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "common/control/numbers.h"
#include "tests/worker/rank/agent_mode_rig.h"

namespace mt::rank {
namespace {

using megatrain::v1::AgentMessage;
using megatrain::v1::Command;
using megatrain::v1::RankMessage;

// Kind generate: the states of a rank that trains, its text in the file that the agent names.
class ReaderModeTest : public AgentModeTest {
 protected:
  // A model that is not done with all that it is asked for below within a minute.
  ReaderModeTest() : ReaderModeTest({"model.layers=4", "model.hidden_size=256"}) {}
  explicit ReaderModeTest(std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), {"training.train_iters=2", "checkpoint.at_end=true",
                                       "training.micro_batch_size=1"});
    const TestAgent agent(socket_, Assign(Job(overrides)));
    Start();
    EXPECT_EQ(Wait(), 0) << data::ReadText(dir_.Path("err"));
  }
  TestAgent::Options AssignReader(const std::vector<std::string>& overrides) const {
    constexpr char kText[] =
        "{name: look, kind: generate, read: {checkpoint: tiny}, generate: {prompts: [ab]}, "
        "placement: {device: cpu, threads_per_rank: 1}}";
    JobSpec job;
    const spec::Faults faults = spec::LoadJob(kText, overrides, {}, &job);
    EXPECT_TRUE(faults.empty()) << spec::FormatFaults(faults);
    TestAgent::Options options = Assign(job);
    options.assignment.set_output_file(output_);
    return options;
  }
  static bool IsEnd(const RankMessage& message) {
    return message.has_job_report() && message.job_report().has_training_ended();
  }

  const std::string output_ = dir_.Path("output");
};

TEST_F(ReaderModeTest, WritesItsTextAndEnds) {
  TestAgent agent(socket_, AssignReader({"generate.tokens=5"}));
  Start();
  for (const auto state : {megatrain::v1::COMM_INIT, megatrain::v1::LOADING, megatrain::v1::READY,
                           megatrain::v1::TRAINING})
    agent.Await([state](const RankMessage& m) { return IsState(m, state); });
  const auto ended = agent.Await(IsEnd).job_report().training_ended();
  EXPECT_TRUE(ended.completed());
  EXPECT_TRUE(ended.message().starts_with("step-00000002-e")) << ended.message();
  EXPECT_EQ(Wait(), 0) << data::ReadText(dir_.Path("err"));
  const std::string text = data::ReadText(output_);
  EXPECT_TRUE(text.starts_with("ab") && text.ends_with("\n")) << text;
}

TEST_F(ReaderModeTest, IsStoppedAndTakesNoOtherCommand) {
  TestAgent agent(socket_, AssignReader({"generate.temperature=1", "generate.samples=4096"}));
  Start();
  agent.Await([](const RankMessage& m) { return IsState(m, megatrain::v1::TRAINING); });
  EXPECT_NE(Do(&agent, Order("hold", Command::HOLD)).error(), "");
  const auto writes = [&] {
    return data::ReadText(output_).find("== sample 1\nab") != std::string::npos;
  };
  while (!writes()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(Do(&agent, Order("stop", Command::STOP_WITHOUT_SAVE)).error(), "");
  EXPECT_FALSE(agent.Await(IsEnd).job_report().training_ended().completed());
  EXPECT_EQ(Wait(), 0) << data::ReadText(dir_.Path("err"));
}

TEST_F(ReaderModeTest, WithoutAPlaceForItsTextItFails) {
  TestAgent::Options options = AssignReader({});
  options.assignment.clear_output_file();
  TestAgent agent(socket_, options);
  Start();
  const RankMessage fault = agent.Await([](const RankMessage& m) { return m.has_fault(); });
  EXPECT_NE(fault.fault().message().find("no log root"), std::string::npos);
  EXPECT_EQ(Wait(), 64);
}

TEST_F(ReaderModeTest, AFullDiskEndsItAtOnce) {
  TestAgent::Options options = AssignReader({"generate.temperature=1", "generate.samples=4096"});
  options.assignment.set_output_file("/dev/full");
  TestAgent agent(socket_, options);
  Start();
  const RankMessage fault = agent.Await([](const RankMessage& m) { return m.has_fault(); });
  EXPECT_NE(fault.fault().message().find("No space left"), std::string::npos)
      << fault.fault().message();
  EXPECT_EQ(Wait(), 73) << data::ReadText(dir_.Path("err"));
  EXPECT_LT(agent.Progress(), 1000) << "the rest is not computed";
}

// A model that is done with thousands of texts in a second.
class QuickReaderTest : public ReaderModeTest {
 protected:
  QuickReaderTest() : ReaderModeTest(std::vector<std::string>()) {}
};

TEST_F(QuickReaderTest, ACheckpointThatIsNotThereIsNamedByItsField) {
  TestAgent agent(socket_, AssignReader({"read.step=77"}));
  Start();
  const RankMessage fault = agent.Await([](const RankMessage& m) { return m.has_fault(); });
  for (const std::string& part :
       {"read.checkpoint tiny below the checkpoint root " + dir_.Path("checkpoints"),
        std::string("no checkpoint \"77\""), std::string("placement.node_selector")}) {
    EXPECT_NE(fault.fault().message().find(part), std::string::npos) << fault.fault().message();
  }
  EXPECT_EQ(Wait(), 64);
}

TEST_F(QuickReaderTest, ARootThatIsNotTheAgentsIsNotRead) {
  TestAgent::Options options = AssignReader({});
  options.assignment.set_checkpoint_root_id("that-was-mounted");
  TestAgent agent(socket_, options);
  Start();
  const RankMessage fault = agent.Await([](const RankMessage& m) { return m.has_fault(); });
  EXPECT_NE(fault.fault().message().find("is its file system mounted?"), std::string::npos)
      << fault.fault().message();
  EXPECT_EQ(Wait(), 64);
}

// Half a document of JSON would be none.
TEST_F(QuickReaderTest, JsonThatIsTooLongIsAnError) {
  TestAgent agent(
      socket_, AssignReader({"read.output=json", "generate.temperature=1", "generate.samples=4096",
                             "generate.tokens=2", "generate.prompts=[abcdefghijkl]"}));
  Start();
  const RankMessage fault = agent.Await([](const RankMessage& m) { return m.has_fault(); });
  EXPECT_NE(fault.fault().message().find("the JSON has more than 1048576 bytes"), std::string::npos)
      << fault.fault().message();
  EXPECT_EQ(Wait(), 64);
}

// Of text there is the beginning, and the job has done what it could.
TEST_F(QuickReaderTest, TextThatIsTooLongIsCut) {
  std::string prompts;  // shown as six characters each three bytes
  for (int i = 0; i < 16; ++i) {
    prompts += i == 0 ? "\"" : ", \"";
    for (int j = 0; j < 5; ++j) prompts += "\\u200b";
    prompts += '"';
  }
  TestAgent agent(
      socket_, AssignReader({"generate.temperature=1", "generate.samples=4096", "generate.tokens=1",
                             "generate.prompts=[" + prompts + "]"}));
  Start();
  const auto ended = agent.Await(IsEnd).job_report().training_ended();
  EXPECT_TRUE(ended.completed());
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(output_));
  EXPECT_TRUE(ended.message().ends_with(fmt::format("; cut at {} bytes", bytes)))
      << ended.message();
  EXPECT_LE(bytes, control::kMaxOutputBytes);
  EXPECT_GT(bytes, control::kMaxOutputBytes - 4);
  EXPECT_EQ(Wait(), 0) << data::ReadText(dir_.Path("err"));
}

// A job that keeps its last two checkpoints, has saved one of step 0 besides, and hears these
// commands.
class KeptStepsTest : public AgentModeTest {
 protected:
  std::vector<std::string> LeftAfter(const std::vector<std::vector<int64_t>>& told) {
    TestAgent agent(socket_, Assign(Job({"training.train_iters=6", "checkpoint.every_iters=1",
                                         "checkpoint.keep_last=2"}),
                                    /*hold=*/true));
    Start();
    agent.Await([](const RankMessage& m) { return IsState(m, megatrain::v1::HELD); });
    const std::string zero = Do(&agent, Order("zero", Command::CHECKPOINT_NOW)).checkpoint().path();
    for (size_t i = 0; i < told.size(); ++i) {
      AgentMessage keep = Order("keep" + std::to_string(i), Command::KEEP_STEPS);
      for (const int64_t step : told[i]) keep.mutable_word()->add_kept_steps(step);
      EXPECT_EQ(Do(&agent, keep).error(), "");
    }
    agent.Say(Order("on", Command::RESUME));
    EXPECT_EQ(Wait(), 0) << data::ReadText(dir_.Path("err"));
    const std::filesystem::path folder = std::filesystem::path(zero).parent_path();
    std::vector<std::string> left;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("step-")) left.push_back(name.substr(0, 13));
    }
    std::ranges::sort(left);
    return left;
  }
};

TEST_F(KeptStepsTest, WhatOthersReadIsNotPruned) {
  EXPECT_EQ(LeftAfter({{0}}),
            (std::vector<std::string>{"step-00000000", "step-00000005", "step-00000006"}));
}

TEST_F(KeptStepsTest, WhatNobodyReadsAnyMoreIsPruned) {
  EXPECT_EQ(LeftAfter({{0}, {}}), (std::vector<std::string>{"step-00000005", "step-00000006"}));
}

}  // namespace
}  // namespace mt::rank
