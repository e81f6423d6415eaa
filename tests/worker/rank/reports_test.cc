// The reports of a run as messages: every field of steps, checkpoints, finished commands and
// telemetry.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/rank.pb.h"
#include "worker/rank/channel_observer.h"
#include "worker/rank/step_log.h"
#include "worker/rank/telemetry_board.h"

namespace mt::rank {
namespace {

using megatrain::v1::RankMessage;

class ReportsTest : public testing::Test {
 protected:
  std::vector<RankMessage> sent_;
  std::vector<train::RankCounters> posted_;
  ChannelObserver observer_{
      {.send = [this](RankMessage message) { sent_.push_back(std::move(message)); },
       .note_progress = [](int64_t) {},
       .post_counters = [this](const train::RankCounters& c) { posted_.push_back(c); }}};
};

train::CheckpointRecord Saved() {
  return {.step = 7,
          .epoch = 2,
          .consumed_samples = 56,
          .path = "/c/step-00000007-e0002",
          .bytes = 1000,
          .seconds = 0.5,
          .time_us = 99,
          .stall_seconds = 0.75,
          .tokens = 896,
          .digest = "xxh3:00",
          .run = "run-a"};
}

void ExpectSaved(const megatrain::v1::CheckpointInfo& info) {
  EXPECT_EQ(info.step(), 7);
  EXPECT_EQ(info.epoch(), 2);
  EXPECT_EQ(info.consumed_samples(), 56);
  EXPECT_EQ(info.path(), "/c/step-00000007-e0002");
  EXPECT_EQ(info.bytes(), 1000);
  EXPECT_EQ(info.seconds(), 0.5);
  EXPECT_EQ(info.time_us(), 99);
  EXPECT_EQ(info.stall_seconds(), 0.75);
  EXPECT_EQ(info.tokens(), 896);
  EXPECT_EQ(info.digest(), "xxh3:00");
  EXPECT_EQ(info.run(), "run-a");
}

TEST_F(ReportsTest, CommandsWithTheirResult) {
  observer_.OnCommandDone({.id = "save",
                           .kind = train::CommandKind::kCheckpointNow,
                           .carrier_step = 6,
                           .step = 7,
                           .checkpoint = Saved()});
  observer_.OnCommandDone({.id = "full", .step = 9, .error = base::Internal("disk full")});
  observer_.OnCommandDone({.id = "", .step = 9});
  ASSERT_EQ(sent_.size(), 2U) << "nobody waits for a command without a name";
  EXPECT_EQ(sent_[0].command_done().command_id(), "save");
  EXPECT_EQ(sent_[0].command_done().word_step(), 6);
  EXPECT_EQ(sent_[0].command_done().step(), 7);
  EXPECT_TRUE(sent_[0].command_done().error().empty());
  ExpectSaved(sent_[0].command_done().checkpoint());
  EXPECT_FALSE(sent_[1].command_done().has_checkpoint());
  EXPECT_EQ(sent_[1].command_done().error(), "disk full");
}

TEST_F(ReportsTest, TextsThatWereAskedFor) {
  observer_.OnCommandDone({.id = "write",
                           .kind = train::CommandKind::kDecode,
                           .step = 7,
                           .texts = {{.prompt = 0, .sample = 1, .text = "upon", .finish = "tokens"},
                                     {.prompt = 1, .sample = 0, .text = "", .finish = "time"}}});
  ASSERT_EQ(sent_.size(), 1U);
  const megatrain::v1::DecodedTexts& decoded = sent_[0].command_done().decoded();
  ASSERT_EQ(decoded.texts_size(), 2);
  EXPECT_EQ(decoded.texts(0).sample(), 1);
  EXPECT_EQ(decoded.texts(0).text(), "upon");
  EXPECT_EQ(decoded.texts(1).prompt(), 1);
  EXPECT_EQ(decoded.texts(1).finish(), "time");
}

TEST_F(ReportsTest, AStartWithItsRun) {
  train::RunInfo info{.total_steps = 20, .resumed_from_step = 10, .run_begins = true};
  info.run.id = "run-a";
  observer_.OnRunInfo(info);
  info.run.parent = "run-b";
  info.run.restart = "token";
  info.run.beginning.load = "10";
  info.run.from = checkpoint::RunSource{.run = "run-c", .id = {10, 1}, .digest = "xxh3:00"};
  info.run_begins = false;
  info.other_runs = {.runs = 2, .checkpoints = 3, .bytes = 4096};
  info.outlook = {.tokens = 640, .tokens_ahead = 320, .train_passes = 2.5, .valid_passes = 0.5};
  info.changed = {"optimizer.lr 0.001 -> 0.0003"};
  observer_.OnRunInfo(info);
  ASSERT_EQ(sent_.size(), 2U);
  const megatrain::v1::RunInfo& plain = sent_[0].job_report().run_info();
  EXPECT_EQ(plain.total_steps(), 20);
  EXPECT_EQ(plain.run().id(), "run-a");
  EXPECT_TRUE(plain.run_begins());
  EXPECT_EQ(plain.run().beginning(), "") << "the job named none";
  EXPECT_EQ(plain.run().from_digest(), "");
  EXPECT_EQ(plain.run().restart(), "");
  const megatrain::v1::RunInfo& named = sent_[1].job_report().run_info();
  EXPECT_FALSE(named.run_begins());
  EXPECT_EQ(named.run().parent(), "run-b");
  EXPECT_EQ(named.run().restart(), "token");
  EXPECT_EQ(named.run().beginning(), "load 10");
  EXPECT_EQ(named.run().from_run(), "run-c");
  EXPECT_EQ(named.run().from_step(), 10);
  EXPECT_EQ(named.run().from_digest(), "xxh3:00");
  EXPECT_FALSE(plain.run().has_other_runs());
  EXPECT_EQ(named.run().other_runs().runs(), 2);
  EXPECT_EQ(named.run().other_runs().checkpoints(), 3);
  EXPECT_EQ(named.run().other_runs().bytes(), 4096);
  EXPECT_EQ(plain.run().start().changed_size(), 0);
  EXPECT_EQ(named.run().start().tokens(), 640);
  EXPECT_EQ(named.run().start().train_passes(), 2.5);
  EXPECT_EQ(named.run().start().valid_passes(), 0.5);
  ASSERT_EQ(named.run().start().changed_size(), 1);
  EXPECT_EQ(named.run().start().changed(0), "optimizer.lr 0.001 -> 0.0003");
}

TEST_F(ReportsTest, StatesCheckpointsAndSteps) {
  observer_.OnState(train::TrainState::kHeld, 12);
  observer_.OnCheckpointSaved(Saved());
  observer_.OnCheckpointsDeleted({"/c/a", "/c/b"});
  megatrain::v1::StepRecord step;
  step.set_step(3);
  step.set_bubble(0.5);
  step.set_launch_seconds(0.125);
  (*step.mutable_phase_seconds())["data"] = 0.25;
  observer_.OnStep(step);
  ASSERT_EQ(sent_.size(), 4U);
  EXPECT_EQ(sent_[0].state().state(), megatrain::v1::HELD);
  EXPECT_EQ(sent_[0].state().step(), 12);
  ExpectSaved(sent_[1].job_report().checkpoint_saved());
  ASSERT_EQ(sent_[2].job_report().checkpoints_deleted().paths_size(), 2);
  EXPECT_EQ(sent_[2].job_report().checkpoints_deleted().paths(1), "/c/b");
  EXPECT_EQ(sent_[3].step().SerializeAsString(), step.SerializeAsString());
}

TEST_F(ReportsTest, EvaluationsInTheUnitsThatAreKnown) {
  observer_.OnEval({.step = 5, .loss = std::log(8.0), .tokens = 4, .bits_per_byte = 1.5});
  observer_.OnEval({.step = 6, .loss = 21});
  ASSERT_EQ(sent_.size(), 2U);
  const megatrain::v1::EvalRecord& known = sent_[0].job_report().eval();
  EXPECT_DOUBLE_EQ(known.perplexity(), 8);
  EXPECT_EQ(known.bits_per_byte(), 1.5);
  const megatrain::v1::EvalRecord& other = sent_[1].job_report().eval();
  EXPECT_EQ(other.perplexity(), std::exp(20.0)) << "as Megatron has it";
  EXPECT_FALSE(other.has_bits_per_byte());
}

TEST_F(ReportsTest, SamplesOfAnEvaluation) {
  observer_.OnEval({.step = 5, .samples = {{"a", "b", "tokens"}, {"", "c", "eod"}}});
  ASSERT_EQ(sent_.size(), 1U);
  const megatrain::v1::EvalRecord& eval = sent_[0].job_report().eval();
  ASSERT_EQ(eval.samples_size(), 2);
  EXPECT_EQ(eval.samples(0).prompt() + eval.samples(0).text(), "ab");
  EXPECT_EQ(eval.samples(1).text(), "c");
  EXPECT_EQ(eval.samples(1).finish(), "eod");
}

TEST_F(ReportsTest, TheLogPassesEverythingOn) {
  StepLog log(megatrain::v1::JobSpec(), &observer_);
  log.OnState(train::TrainState::kTraining, 1);
  log.OnCheckpointsDeleted({"/c/a"});
  log.OnCommandDone({.id = "x"});
  log.OnCounters({.tokens = 5});
  EXPECT_EQ(sent_.size(), 3U);
  ASSERT_EQ(posted_.size(), 1U);
  EXPECT_EQ(posted_[0].tokens, 5);
}

train::RankCounters AfterSteps(int64_t steps) {
  const auto n = static_cast<double>(steps);
  train::RankCounters counters;
  counters.tokens = 100 * steps;
  counters.phase_seconds[static_cast<size_t>(report::StepPhase::kForward)] = 0.25 * n;
  counters.memory_bytes[static_cast<size_t>(memory::Kind::kWeights)] = 4096;
  counters.comm.dp.ops[static_cast<size_t>(comm::CommOp::kAllReduce)] = {
      .num_calls = 3 * steps, .payload_bytes = 1000 * steps, .seconds = 0.5 * n};
  counters.comm.tp.ops[static_cast<size_t>(comm::CommOp::kAllGather)] = {
      .num_calls = 7 * steps, .payload_bytes = 500 * steps, .seconds = 0.125 * n};
  counters.comm.pp.ops[static_cast<size_t>(comm::CommOp::kSend)] = {.num_calls = steps};
  counters.comm.world.ops[static_cast<size_t>(comm::CommOp::kAllReduce)] = {.num_calls = steps};
  counters.step_seconds = n;
  return counters;
}

TEST(TelemetryBoardTest, TellsTheNewestNumbersAndTheStepsSince) {
  TelemetryBoard board;
  megatrain::v1::RankTelemetry first;
  board.Fill(&first);
  EXPECT_EQ(first.tokens(), 0);
  EXPECT_EQ(first.recent_step_seconds_size(), 0);
  EXPECT_EQ(first.collectives_size(), 0);
  EXPECT_GT(first.host_memory_bytes(), 0);

  board.SetCommInit(1.5);
  for (int64_t step = 1; step <= 3; ++step) board.Post(AfterSteps(step));
  megatrain::v1::RankTelemetry second;
  board.Fill(&second);
  EXPECT_EQ(second.tokens(), 300);
  EXPECT_EQ(second.comm_init_seconds(), 1.5);
  EXPECT_EQ(second.phase_seconds().at("forward"), 0.75);
  EXPECT_EQ(second.memory_bytes().at("weights"), 4096);
  ASSERT_EQ(second.collectives_size(), 4);
  EXPECT_EQ(second.collectives(0).op(), "all_gather");
  EXPECT_EQ(second.collectives(0).group(), "tp");
  EXPECT_EQ(second.collectives(0).calls(), 21);
  EXPECT_EQ(second.collectives(1).op(), "send");
  EXPECT_EQ(second.collectives(1).group(), "pp");
  EXPECT_EQ(second.collectives(2).op(), "all_reduce");
  EXPECT_EQ(second.collectives(2).group(), "dp");
  EXPECT_EQ(second.collectives(2).calls(), 9);
  EXPECT_EQ(second.collectives(2).bytes(), 3000);
  EXPECT_EQ(second.collectives(2).seconds(), 1.5);
  EXPECT_EQ(second.collectives(3).group(), "world");
  EXPECT_EQ(second.collectives(3).calls(), 3);
  EXPECT_EQ(
      std::vector<double>(second.recent_step_seconds().begin(), second.recent_step_seconds().end()),
      (std::vector<double>{1, 2, 3}));

  for (int64_t step = 4; step <= 2'000; ++step) board.Post(AfterSteps(step));
  megatrain::v1::RankTelemetry third;
  board.Fill(&third);
  ASSERT_EQ(third.recent_step_seconds_size(), static_cast<int>(TelemetryBoard::kRecentSteps))
      << "at most";
  EXPECT_EQ(third.recent_step_seconds(0), 977);
  EXPECT_EQ(*third.recent_step_seconds().rbegin(), 2'000);
  megatrain::v1::RankTelemetry fourth;
  board.Fill(&fourth);
  EXPECT_EQ(fourth.recent_step_seconds_size(), 0);
}

}  // namespace
}  // namespace mt::rank
