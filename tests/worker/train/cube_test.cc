// Everything that a run must follow, in a job that uses all three axes at once: commands, faults,
// broken groups, checkpoints.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/train/train_rig.h"

namespace mt::train {
namespace {

// Makes the last token of a document of WriteTokens one beyond the vocabulary.
void SpoilDocument(const std::string& bin, int document) {
  int64_t tokens = 0;
  for (int d = 0; d <= document; ++d) tokens += 20 + (d * 7) % 40;
  std::fstream file(bin, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(2 * (tokens - 1));
  file.write("\xe7\x03", 2);  // 999
}

class CubeTest : public TrainTest {
 protected:
  CubeTest() { layout_ = CubeLayout(); }
  // This rank alone reads data in which a document ends in a token beyond the vocabulary.
  void DamageDataOf(int rank, int document) {
    const std::string root = base::JoinPath(dir_.path(), "damaged");
    ASSERT_TRUE(base::MakeDirs(root).ok());
    WriteTokens(base::JoinPath(root, "text"), 200, document);
    adjust_ = [rank, root](int r, TrainArgs* args) {
      if (r != rank) return;
      args->data_root = root;
      args->cache_root = "";
    };
  }
};

TEST_F(CubeTest, CommandsActAtTheSameStepOnEveryRank) {
  const auto update = Command{
      .kind = CommandKind::kUpdate,
      .id = "update",
      .settings = SettingsOf(TinyJob({"training.log_every=5", "training.eval.every_iters=8"}))};
  const auto outcomes = Run({}, {{3, {CommandKind::kCheckpointNow, "save"}},
                                 {6, {CommandKind::kHold, "hold"}},
                                 {10, update},
                                 {11, {CommandKind::kResume, "resume"}},
                                 {15, {CommandKind::kStopWithSave, "stop"}}});
  ASSERT_EQ(outcomes.size(), 8U);
  // Polls 8 to 11 are of idle reductions, so poll 15 is step 11's: its bits act before step 13.
  ExpectClean(outcomes, 12);
  for (const RankOutcome& rank : outcomes) {
    EXPECT_EQ(rank.seen.state_steps, (std::vector<int64_t>{0, 0, 0, 7, 7, 12}));
    EXPECT_EQ(rank.seen.settings.size(), 1U);
    EXPECT_EQ(rank.seen.counters.size(), 12U);
  }
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{4, 12}));
  std::vector<std::string> done;
  for (const CommandResult& result : outcomes[0].seen.commands_done) {
    EXPECT_TRUE(result.error.ok()) << result.id << ": " << result.error;
    done.push_back(result.id);
  }
  EXPECT_EQ(done, (std::vector<std::string>{"save", "hold", "update", "resume", "stop"}));
  ASSERT_EQ(outcomes[0].seen.evals.size(), 1U);
  EXPECT_EQ(outcomes[0].seen.evals[0].step, 8);
}

// What a checkpoint must bring back: weights and masters, each rule's moments, the loss scale on
// its way (it doubles after every third clean step here), the place in a batch ramp.
struct StateCase {
  const char* name;
  std::vector<std::string> overrides;
};

class CubeResumeTest : public CubeTest, public ::testing::WithParamInterface<StateCase> {};

TEST_P(CubeResumeTest, StoppingAndGoingOnChangesNoBit) {
  std::vector<std::string> job = GetParam().overrides;
  const auto saved = Run(job, {{9, {CommandKind::kStopWithSave, ""}}});
  ExpectClean(saved, 10);
  const auto rest = Run(job);
  ExpectClean(rest, 20);
  EXPECT_EQ(rest[0].seen.infos.at(0).resumed_from_step, 10);
  job.emplace_back("checkpoint.directory=none");
  const auto straight = Run(job);
  ExpectClean(straight, 20);
  std::vector<StepRecord> joined = saved[0].seen.steps;
  joined.insert(joined.end(), rest[0].seen.steps.begin(), rest[0].seen.steps.end());
  ExpectEqualCurve(joined, straight[0].seen.steps);
  for (size_t i = 0; i < joined.size(); ++i) {
    EXPECT_EQ(joined[i].loss_scale(), straight[0].seen.steps[i].loss_scale()) << joined[i].step();
  }
  EXPECT_LT(joined.back().loss(), joined.front().loss());
}

INSTANTIATE_TEST_SUITE_P(
    States, CubeResumeTest,
    ::testing::Values(
        StateCase{"Double", {}}, StateCase{"Single", {"training.precision=fp32"}},
        StateCase{"Bf16", {"training.precision=bf16"}},
        StateCase{"Fp16",
                  {"training.precision=fp16", "training.loss_scale.initial=4096",
                   "training.loss_scale.window=3"}},
        StateCase{"Sgd", {"optimizer.type=sgd", "optimizer.lr=0.1", "optimizer.min_lr=0.1"}},
        StateCase{"WholeState", {"parallel.zero_stage=0", "training.precision=bf16"}},
        // Batches of 4, 8, 12, 16 samples; the run stops where they are 8.
        StateCase{"BatchRamp", {"training.global_batch_size=16", "training.batch_ramp=[4,4,96]"}}),
    [](const auto& test) { return test.param.name; });

TEST_F(CubeTest, ABatchRampChangesEachStepsBatch) {
  const std::vector<std::string> ramp = {
      "training.global_batch_size=16", "training.batch_ramp=[4,4,96]", "checkpoint.directory=none"};
  const auto outcomes = Run(ramp);
  ExpectClean(outcomes, 20);
  int64_t consumed = 0;
  int64_t tokens = 0;
  for (const StepRecord& step : outcomes[0].seen.steps) {
    // Every 96 / 3 samples the batch grows by 4.
    const int64_t batch = std::min<int64_t>(16, 4 + 4 * (consumed / 32));
    consumed += batch;
    tokens += batch * 16;
    EXPECT_EQ(step.tokens(), batch * 16) << step.step();
    EXPECT_EQ(step.consumed_samples(), consumed) << step.step();
    EXPECT_DOUBLE_EQ(step.model_flops() / static_cast<double>(batch),
                     outcomes[0].seen.steps[0].model_flops() / 4);
  }
  EXPECT_EQ(outcomes[7].seen.counters.back().tokens, tokens / 2);
  layout_ = {};
  ExpectSameCurve(outcomes[0].seen.steps, Run(ramp)[0].seen.steps, 1e-12, 1e-12);
}

TEST_F(CubeTest, FewerRanksGoOn) {
  ExpectClean(Run({}, {{4, {CommandKind::kStopWithSave, ""}}}), 5);
  layout_ = {"parallel.tensor=2", "parallel.pipeline=2"};
  const auto fewer = Run({});
  ExpectClean(fewer, 20);
  layout_ = CubeLayout();
  const auto straight = Run({"checkpoint.directory=none"});
  ExpectSameCurve(fewer[0].seen.steps,
                  {straight[0].seen.steps.begin() + 5, straight[0].seen.steps.end()}, 1e-12, 1e-12);
}

// A rank whose data ends is one of its replica's four: the others must get what they wait for.
TEST_F(CubeTest, AFaultOfOneRankStopsAllAtTheSameStep) {
  DamageDataOf(/*rank=*/6, /*document=*/40);  // stage 1, replica 1, tensor rank 0
  const auto outcomes = Run({"training.train_iters=200", "checkpoint.directory=none"});
  const int64_t last = outcomes[6].result.last_step;
  EXPECT_LT(last, 200);
  for (size_t r = 0; r < outcomes.size(); ++r) {
    const TrainResult& result = outcomes[r].result;
    EXPECT_TRUE(outcomes[r].created);
    EXPECT_FALSE(result.status.ok()) << r;
    EXPECT_EQ(result.last_step, last) << r;
    const bool own = result.message.find("999") != std::string::npos;
    EXPECT_EQ(own, r == 6) << result.message;
    EXPECT_EQ(failure::CauseOf(result.status) == failure::Cause::kNetwork, r != 6)
        << result.message;
  }
}

// Of four stages the two in the middle have data of which no document can be read.
TEST_F(CubeTest, StagesInTheMiddleReadNoTokens) {
  layout_ = {"parallel.pipeline=4",          "model.layers=4",        "checkpoint.directory=none",
             "training.eval.every_iters=10", "training.eval.iters=2", "training.train_iters=12"};
  const auto whole = Run({});
  ExpectClean(whole, 12);
  const std::string root = base::JoinPath(dir_.path(), "damaged");
  const auto spoil = [&](std::vector<int> ranks) {
    std::filesystem::remove_all(root);
    ASSERT_TRUE(base::MakeDirs(root).ok());
    WriteTokens(base::JoinPath(root, "text"), 200);
    adjust_ = [root, ranks](int rank, TrainArgs* args) {
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) return;
      args->data_root = root;
      args->cache_root = "";
      // After a step, since a sample of the ids is looked at when the data are opened.
      args->after_step = [root](int64_t step, const params::ParamStore&) {
        if (step != 1) return;
        for (int document = 0; document < 200; ++document)
          SpoilDocument(base::JoinPath(root, "text.bin"), document);
      };
    };
  };
  spoil({1, 2});
  const auto damaged = Run({});
  ExpectClean(damaged, 12);
  ExpectEqualCurve(damaged[0].seen.steps, whole[0].seen.steps);
  ASSERT_EQ(damaged[0].seen.evals.size(), 2U) << "the whole split at the end";
  EXPECT_EQ(damaged[0].seen.evals[1].loss, whole[0].seen.evals[1].loss);
  for (const int end : {0, 3}) {
    spoil({end});
    const auto failed = Run({});
    for (int rank = 0; rank < 4; ++rank) {
      const TrainResult& result = failed[static_cast<size_t>(rank)].result;
      EXPECT_EQ(result.message.find("999") != std::string::npos, rank == end) << result.message;
    }
  }
}

TEST_F(CubeTest, NonfiniteGradientsOfOneRankStopAll) {
  adjust_ = [](int rank, TrainArgs* args) {
    if (rank != 5) return;
    args->end_of_step = [](int64_t step, engine::StepVector* mine) {
      if (step == 6) mine->sums.nonfinite += 1;
    };
  };
  for (const RankOutcome& rank : Run({"checkpoint.directory=none"})) {
    EXPECT_EQ(failure::CauseOf(rank.result.status), failure::Cause::kNumeric) << rank.result.status;
    EXPECT_EQ(rank.result.last_step, 7);
  }
}

// A break of one group of one rank reaches ranks that share no group with it but the world.
class BrokenGroupTest : public CubeTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(BrokenGroupTest, EndsEveryRank) {
  const std::string which = GetParam();
  adjust_ = [which](int rank, TrainArgs* args) {
    if (rank != 3) return;  // stage 0, replica 1, tensor rank 1
    args->end_of_step = [which, groups = args->groups](int64_t step, engine::StepVector*) {
      if (step != 3) return;
      if (which == "Tensor") groups->tp()->Abort("test");
      if (which == "Data") groups->dp_reduce()->Abort("test");
      if (which == "World") groups->world()->Abort("test");
      if (which == "Link") groups->links()->activation_out->Abort("test");
    };
  };
  for (const RankOutcome& rank : Run({"checkpoint.directory=none"})) {
    EXPECT_FALSE(rank.result.status.ok());
    EXPECT_EQ(failure::CauseOf(rank.result.status), failure::Cause::kNetwork) << rank.result.status;
    EXPECT_LE(rank.result.last_step, 3);
  }
}
INSTANTIATE_TEST_SUITE_P(Groups, BrokenGroupTest,
                         ::testing::Values("Tensor", "Data", "World", "Link"),
                         [](const auto& test) { return test.param; });

TEST_F(CubeTest, EvaluationThatOneRankCannotReadEndsAll) {
  // Of the validation split, read by replica 1; after a step, since a sample of the ids is looked
  // at when the data are opened.
  const std::string root = base::JoinPath(dir_.path(), "damaged");
  ASSERT_TRUE(base::MakeDirs(root).ok());
  WriteTokens(base::JoinPath(root, "text"), 200);
  adjust_ = [root](int rank, TrainArgs* args) {
    if (rank != 2) return;
    args->data_root = root;
    args->cache_root = "";
    args->after_step = [root](int64_t step, const params::ParamStore&) {
      if (step == 3) SpoilDocument(base::JoinPath(root, "text.bin"), 183);
    };
  };
  const auto outcomes =
      Run({"training.eval.every_iters=5", "training.eval.iters=0", "checkpoint.directory=none"});
  for (size_t r = 0; r < outcomes.size(); ++r) {
    const TrainResult& result = outcomes[r].result;
    EXPECT_EQ(result.last_step, 5) << r;
    EXPECT_EQ(result.message.find("999") != std::string::npos, r == 2) << result.message;
    if (r != 2) {
      EXPECT_EQ(failure::CauseOf(result.status), failure::Cause::kNetwork) << result.status;
      EXPECT_NE(result.message.find("another rank"), std::string::npos) << result.message;
    }
  }
}

TEST_F(CubeTest, PhasesAndCountersKnowTheAxes) {
  const auto outcomes = Run({"checkpoint.directory=none"});
  ExpectClean(outcomes, 20);
  for (const RankOutcome& rank : outcomes) {
    const RankCounters& last = rank.seen.counters.back();
    EXPECT_GT(last.phase_seconds[static_cast<size_t>(report::StepPhase::kTpComm)], 0);
    EXPECT_GT(last.phase_seconds[static_cast<size_t>(report::StepPhase::kPpWait)], 0);
    EXPECT_GT(last.comm.tp.of(comm::CommOp::kReduceScatter).num_calls, 0);
    EXPECT_GT(last.comm.pp.of(comm::CommOp::kSend).num_calls, 0);
    EXPECT_EQ(last.comm.pp.of(comm::CommOp::kSend).num_calls,
              last.comm.pp.of(comm::CommOp::kRecv).num_calls);
    EXPECT_GT(last.comm.dp.of(comm::CommOp::kReduceScatter).num_calls, 0);
    EXPECT_GT(last.comm.dp.of(comm::CommOp::kAllGather).num_calls, 0);
    EXPECT_GT(last.comm.world.of(comm::CommOp::kAllReduce).num_calls, 0);
    EXPECT_EQ(last.tokens, 20 * 8 * 16 / 2) << "of this rank's replica";
  }
  for (const StepRecord& step : outcomes[0].seen.steps) {
    EXPECT_GT(step.bubble(), 0);
    EXPECT_LT(step.bubble(), 1);
  }
}

}  // namespace
}  // namespace mt::train
