// A checkpoint of any layout and precision loads into any other: the state is the same to the bit,
// and the run goes on as the one that saved it would have. A quarter of the pairs of layouts; all
// of them with MT_LONG_TESTS, a twelfth under sanitizers.
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/sanitized.h"
#include "tests/worker/train/train_rig.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/manifest.h"
#include "worker/checkpoint/loader.h"

namespace mt::train {
namespace {

// What two runs of one precision may differ by.
struct PrecisionOfRun {
  const char* name;
  double loss_tolerance, norm_tolerance;
};
constexpr PrecisionOfRun kF64{"fp64", 1e-12, 1e-12};
constexpr PrecisionOfRun kF32{"fp32", 2e-6, 3e-5};
// Rounding of 16-bit activations differs where sums are cut otherwise.
constexpr PrecisionOfRun kBf16{"bf16", 1e-2, 0.2};
constexpr PrecisionOfRun kF16{"fp16", 1e-2, 0.2};
constexpr double kAcrossPrecisions = 1e-2;  // of the first loss

struct AnyLayout {
  PrecisionOfRun precision;
  std::vector<std::string> overrides;
};

const std::vector<AnyLayout>& Layouts() {
  static const std::vector<AnyLayout> layouts = {
      {kF64, {}},
      {kF64, {"parallel.tensor=2", "parallel.data=2", "parallel.zero_stage=1"}},
      {kF64, {"parallel.pipeline=2", "parallel.virtual_stages=2", "model.vocab_divisible_by=96"}},
      {kF64, {"parallel.tensor=4", "parallel.pipeline=2", "parallel.sequence_parallel=false"}},
      {kF32, {"parallel.data=2"}},
      {kF32,
       {"parallel.tensor=2", "parallel.pipeline=2", "parallel.data=2", "parallel.zero_stage=1",
        "parallel.bucket_size=1024"}},
      {kF32, {"parallel.pipeline=4"}},
      {kF32, {"parallel.tensor=4", "model.vocab_divisible_by=16"}},
      {kBf16,
       {"parallel.pipeline=2", "parallel.virtual_stages=2", "parallel.data=2",
        "parallel.zero_stage=1"}},
      {kBf16, {"parallel.tensor=2"}},
      {kF16, {"parallel.data=4", "parallel.zero_stage=1"}},
      {kF16, {"parallel.tensor=2", "parallel.pipeline=4"}},
  };
  return layouts;
}

constexpr int64_t kSavedStep = 6, kLastStep = 11;

class AnyLayoutTest : public TrainTest {
 protected:
  // A run of this layout to `last`, dropout on, and under fp16 with a loss scale that moves.
  Observed RunAs(const AnyLayout& layout, int64_t last, const std::string& directory,
                 const std::string& load) {
    std::vector<std::string> overrides = {
        "model.layers=4",
        "model.heads=4",
        "training.precision=" + std::string(layout.precision.name),
        "training.exit_at_iter=" + std::to_string(last),
        "checkpoint.keep_last=9",
        "checkpoint.directory=" + directory};
    if (!load.empty()) overrides.push_back("checkpoint.load=" + load);
    if (directory != "none")
      overrides.push_back("checkpoint.every_iters=" + std::to_string(kSavedStep));
    if (layout.precision.name == kF16.name) {
      overrides.push_back("training.loss_scale.initial=1024");
      overrides.push_back("training.loss_scale.window=2");
    }
    overrides.insert(overrides.end(), layout.overrides.begin(), layout.overrides.end());
    // One job: where it has reached its exit already, it saves what it has loaded.
    adjust_ = [](int, TrainArgs* args) {
      args->job_uid = "job";
      args->epoch = 1;
    };
    const std::vector<RankOutcome> ranks = Run(overrides);
    ExpectClean(ranks, last);
    return ranks[0].seen;
  }

  // Every tensor of a directory's checkpoint of kSavedStep, whole and as doubles, by its key.
  std::map<std::string, std::vector<double>> StateIn(const std::string& directory) const {
    const std::string path = dir_.path() + "/checkpoints/" + directory;
    const checkpoint::CheckpointId id{kSavedStep, 1};
    const checkpoint::Manifest manifest = checkpoint::ReadManifest(path, id).value();
    std::map<std::string, std::vector<double>> state;
    checkpoint::LoadArgs load{.directory = path, .id = id, .manifest = &manifest};
    for (const auto& [key, tensor] : manifest.tensors) {
      int64_t count = 1;
      for (const int64_t dim : tensor.shape) count *= dim;
      std::vector<double>& values = state[key];
      values.resize(static_cast<size_t>(count));
      load.slices.push_back({.key = key,
                             .dtype = kernels::DType::kF64,
                             .global_shape = tensor.shape,
                             .offset = std::vector<int64_t>(tensor.shape.size(), 0),
                             .shape = tensor.shape,
                             .data = values.data()});
    }
    const Status loaded = checkpoint::LoadTensors(load);
    EXPECT_TRUE(loaded.ok()) << loaded;
    return state;
  }

  void ExpectSameState(const std::string& saved, const std::string& loaded, bool rounded) const {
    const auto want = StateIn(saved), got = StateIn(loaded);
    ASSERT_EQ(want.size(), got.size());
    EXPECT_GT(want.size(), 60U) << "weights and two moments of every parameter";
    for (const auto& [key, values] : want) {
      const std::vector<double>& mine = got.at(key);
      ASSERT_EQ(mine.size(), values.size()) << key;
      size_t other = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const double expected =
            rounded ? static_cast<double>(static_cast<float>(values[i])) : values[i];
        other += mine[i] != expected ? 1 : 0;
      }
      EXPECT_EQ(other, 0U) << key;
    }
  }
};

void ExpectGoesOn(const AnyLayout& saver, const AnyLayout& loader, bool same,
                  const std::vector<StepRecord>& straight, const std::vector<StepRecord>& got) {
  const std::vector<StepRecord> want(straight.begin() + kSavedStep, straight.end());
  ASSERT_EQ(got.size(), want.size());
  if (same) return ExpectEqualCurve(got, want);
  if (std::string(saver.precision.name) == loader.precision.name) {
    return ExpectSameCurve(got, want, loader.precision.loss_tolerance,
                           loader.precision.norm_tolerance);
  }
  EXPECT_LE(std::abs(got[0].loss() - want[0].loss()), kAcrossPrecisions * want[0].loss());
  EXPECT_EQ(got[0].learning_rate(), want[0].learning_rate());
  EXPECT_EQ(got[0].consumed_samples(), want[0].consumed_samples());
}

TEST_F(AnyLayoutTest, EveryPairGoesOnAsIfItHadNeverStopped) {
  const bool all = std::getenv("MT_LONG_TESTS") != nullptr;
  const std::vector<AnyLayout>& layouts = Layouts();
  const auto name = [](size_t i) { return "layout" + std::to_string(i); };
  std::vector<std::vector<StepRecord>> straight;
  for (size_t i = 0; i < layouts.size(); ++i)
    straight.push_back(RunAs(layouts[i], kLastStep, name(i), "").steps);
  EXPECT_NE(straight[10][4].loss_scale(), straight[10][8].loss_scale()) << "it moves";
  for (size_t i = 0; i < layouts.size(); ++i) {
    const std::string load = name(i) + "/" + checkpoint::FolderName({kSavedStep, 1});
    for (size_t j = 0; j < layouts.size(); ++j) {
      if (!all && (i + j) % (kSanitized ? 12 : 4) != 0) continue;
      SCOPED_TRACE(fmt::format("layout {} into layout {}", i, j));
      const Observed seen = RunAs(layouts[j], kLastStep, "none", load);
      EXPECT_EQ(seen.infos.at(0).resumed_from_step, kSavedStep);
      ExpectGoesOn(layouts[i], layouts[j], i == j, straight[i], seen.steps);
      const std::string again = fmt::format("from{}to{}", i, j);
      RunAs(layouts[j], kSavedStep, again, load);
      ExpectSameState(name(i), again,
                      std::string(layouts[i].precision.name) == "fp64" &&
                          std::string(layouts[j].precision.name) != "fp64");
    }
  }
}

TEST_F(AnyLayoutTest, AnotherOptimizerBeginsWithFreshMoments) {
  Run({"optimizer.type=sgd", "optimizer.lr=0.1"}, {{5, {CommandKind::kStopWithSave, ""}}});
  const auto adam = Run({"parallel.data=2"}, {{5, {CommandKind::kStopWithSave, ""}}});
  ExpectClean(adam, 12);
  EXPECT_EQ(adam[0].seen.infos[0].resumed_from_step, 6);
  EXPECT_LT(adam[0].seen.steps.back().loss(), adam[0].seen.steps.front().loss() + 0.1);
  // And back: what SGD does not keep is not asked for.
  const auto sgd = Run({"optimizer.type=sgd", "optimizer.lr=0.1"});
  ExpectClean(sgd, 20);
  EXPECT_EQ(sgd[0].seen.infos[0].resumed_from_step, 12);
}

TEST_F(AnyLayoutTest, WeightsAloneBeginARun) {
  const auto first = Run({"checkpoint.directory=old"}, {{9, {CommandKind::kStopWithSave, ""}}});
  const std::vector<std::string> tuned = {"checkpoint.load=old",     "checkpoint.load_kind=weights",
                                          "training.train_iters=7",  "training.seed=99",
                                          "training.precision=fp32", "optimizer.lr=1e-4",
                                          "parallel.tensor=2",       "checkpoint.directory=new"};
  const auto run = Run(tuned);
  ExpectClean(run, 7);
  EXPECT_EQ(run[0].seen.infos[0].resumed_from_step, 0);
  EXPECT_EQ(run[0].seen.steps.front().consumed_samples(), 8);
  EXPECT_EQ(run[0].seen.steps.front().step(), 1);
  // It knows what the other one had learned.
  EXPECT_LT(run[0].seen.steps.front().loss(), first[0].seen.steps.front().loss() - 0.1);
  const RankOutcome other = Run({"checkpoint.load=old", "checkpoint.load_kind=weights",
                                 "model.layers=4", "checkpoint.directory=none"})[0];
  EXPECT_FALSE(other.created);
  EXPECT_EQ(failure::CauseOf(other.result.status), failure::Cause::kUserError);
}

// The run's steps are its own, though one of them has the number of the one that was loaded.
TEST_F(AnyLayoutTest, WeightsOfTheSameDirectoryAreNoSavedStep) {
  Run({}, {{9, {CommandKind::kStopWithSave, ""}}});
  const auto run = Run({"checkpoint.load=10", "checkpoint.load_kind=weights",
                        "checkpoint.every_iters=5", "training.exit_at_iter=12"},
                       {{9, {CommandKind::kCheckpointNow, "save"}}});
  ExpectClean(run, 12);
  std::vector<int64_t> saved;
  for (const CheckpointRecord& record : run[0].seen.saves) saved.push_back(record.step);
  EXPECT_EQ(saved, (std::vector<int64_t>{5, 10, 12}));
  ASSERT_EQ(run[0].seen.commands_done.size(), 1U);
  EXPECT_TRUE(run[0].seen.commands_done[0].error.ok());
}

TEST_F(AnyLayoutTest, ATagNamesWhatIsLoaded) {
  Run({"checkpoint.keep_last=2"},
      {{3, {.kind = CommandKind::kCheckpointNow, .id = "a", .label = {.tag = "first"}}},
       {6, {.kind = CommandKind::kCheckpointNow, .id = "b", .label = {.tag = "moves"}}},
       {9, {.kind = CommandKind::kCheckpointNow, .id = "c", .label = {.tag = "moves"}}},
       {12, {CommandKind::kCheckpointNow, "d"}},
       {15, {CommandKind::kStopWithSave, "e"}}});
  // That of step 7 lost its tag, and with it its place; 13 and 16 are the newest two.
  EXPECT_EQ(StepsOnDisk(), (std::vector<int64_t>{4, 10, 13, 16}));
  const auto from = [this](const std::string& tag, const std::string& load) {
    std::vector<std::string> job = {
        "checkpoint.load_tag=" + tag, "training.exit_at_iter=16",
        "checkpoint.directory=" + std::string(load.empty() ? "tiny" : "none")};
    if (!load.empty()) job.push_back("checkpoint.load=" + load);
    return Run(job)[0];
  };
  EXPECT_EQ(from("first", "").seen.infos.at(0).resumed_from_step, 4);
  EXPECT_EQ(from("moves", "tiny").seen.infos.at(0).resumed_from_step, 10);
  const RankOutcome missing = from("last", "");
  EXPECT_FALSE(missing.created);
  EXPECT_NE(base::Message(missing.result.status).find("there are: moves, first"), std::string::npos)
      << missing.result.status;
}

TEST_F(AnyLayoutTest, AStaticLossScaleIsTheJobs) {
  const std::string fp16 = "training.precision=fp16";
  Run({fp16, "training.loss_scale.value=64"}, {{3, {CommandKind::kStopWithSave, ""}}});
  const auto now = Run({fp16, "training.loss_scale.value=256"});
  ExpectClean(now, 20);
  EXPECT_EQ(now[0].seen.steps.front().loss_scale(), 256);
}

}  // namespace
}  // namespace mt::train
