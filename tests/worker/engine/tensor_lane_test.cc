// Tensor ranks on asynchronous devices: which product each collective runs beside, that the bits
// are the CPU's whatever backward leaves out or does again, and that no wait could be left out
// unseen.
#include <regex>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/async/async_world.h"
#include "tests/sanitized.h"
#include "tests/worker/train/train_rig.h"

namespace mt::engine {
namespace {

using kernels::async::AsyncWorld;
using kernels::async::WaitName;
using testing::IsEmpty;

struct TensorCase {
  const char* name;
  std::vector<std::string> overrides;
  bool gathers_again = false;  // memory does not suffice to keep gathered inputs
};

std::vector<TensorCase> TensorCases() {
  return {
      {"cut_rows", {}},
      {"cut_rows_gathered_again", {}, true},
      {"whole_rows", {"parallel.sequence_parallel=false"}},
      {"parallel_residual", {"model.parallel_residual=true"}},
      {"parallel_residual_whole_rows",
       {"model.parallel_residual=true", "parallel.sequence_parallel=false"}},
      {"parallel_residual_gathered_again", {"model.parallel_residual=true"}, true},
      {"selective",
       {"training.recompute.mode=selective", "model.activation=swiglu", "model.ffn_size=32"}},
      {"full", {"training.recompute.mode=full", "model.qk_norm=true"}},
      {"full_gathered_again", {"training.recompute.mode=full"}, true},
      {"ends_inside", {"parallel.pipeline=2", "model.hidden_dropout=0"}},
  };
}

class TensorRanksTest : public train::TrainTest {
 protected:
  std::vector<train::RankOutcome> RunOn(AsyncWorld* world, const std::vector<std::string>& more,
                                        int64_t steps) {
    std::vector<std::string> overrides = {"parallel.tensor=2", "training.precision=fp32",
                                          "training.global_batch_size=4",
                                          "parallel.bucket_size=1024", "checkpoint.directory=none"};
    overrides.push_back(fmt::format("training.train_iters={}", steps));
    overrides.insert(overrides.end(), more.begin(), more.end());
    return train::RunJob(
        train::TinyJob(overrides),
        {.root = dir_.path(), .memory_limit_bytes = limit_, .world = world, .async_kind = kind_});
  }
  static memory::BytesByKind MemoryIn(const std::vector<train::RankOutcome>& ranks) {
    return train::MemoryOf(ranks[0].seen.steps.back());
  }
  static int64_t Activations(const std::vector<train::RankOutcome>& ranks) {
    return MemoryIn(ranks)[static_cast<size_t>(memory::Kind::kActivations)];
  }
  // How often rank 0 waits behind this call for this collective; the waits that order something.
  static int64_t CountWaits(const AsyncWorld& world, const std::string& behind,
                            const std::string& collective) {
    const std::regex site("s[0-9]+ '" + behind + "' waits for s[0-9]+ '" + collective + " tp/0'");
    int64_t count = 0;
    for (const WaitName& wait : world.NeededWaits())
      if (wait.rank == 0 && std::regex_match(wait.site, site)) ++count;
    return count;
  }

  int64_t limit_ = 0;  // of each rank and, as far as the host's memory goes, of all together
  kernels::DeviceKind kind_ = kernels::DeviceKind::kCpu;
};

class TensorCaseTest : public TensorRanksTest, public testing::WithParamInterface<TensorCase> {
 protected:
  // Enough for each of two ranks, not for both with what they would keep.
  void SetUp() override {
    TensorRanksTest::SetUp();
    if (!GetParam().gathers_again) return;
    const auto keeping = RunOn(nullptr, GetParam().overrides, 1);
    limit_ = 2 * memory::Total(MemoryIn(keeping)) - 1;
    const auto again = RunOn(nullptr, GetParam().overrides, 1);
    EXPECT_LE(memory::Total(MemoryIn(again)), memory::Total(MemoryIn(keeping)));
  }
};

TEST_P(TensorCaseTest, EveryOrderGivesTheCurveOfTheCpu) {
  const auto inline_run = RunOn(nullptr, GetParam().overrides, 3);
  ExpectClean(inline_run, 3);
  for (uint64_t seed = kSanitized ? 2 : 0; seed < 4; ++seed) {
    AsyncWorld world({.seed = seed});
    const auto run = RunOn(&world, GetParam().overrides, 3);
    ExpectClean(run, 3);
    train::ExpectEqualCurve(run[0].seen.steps, inline_run[0].seen.steps);
    EXPECT_THAT(world.Races(), IsEmpty()) << seed;
    EXPECT_THAT(world.EarlyFrees(), IsEmpty()) << seed;
  }
}

TEST_P(TensorCaseTest, NoWaitForACollectiveCanBeLeftOut) {
  AsyncWorld whole({});
  RunOn(&whole, GetParam().overrides, 1);
  int64_t dropped = 0;
  for (const WaitName& wait : whole.NeededWaits()) {
    // Ranks of a group do the same; links have tests of their own (parallel/pipeline).
    if (wait.rank % 2 != 0 || wait.site.find(" tp/") == std::string::npos) continue;
    ++dropped;
    if (kSanitized && dropped % 5 != 0) continue;
    AsyncWorld world({.drop = wait});
    RunOn(&world, GetParam().overrides, 1);
    EXPECT_FALSE(world.Races().empty() && world.EarlyFrees().empty()) << wait.Text();
  }
  EXPECT_GT(dropped, 10);
}

INSTANTIATE_TEST_SUITE_P(Cases, TensorCaseTest, testing::ValuesIn(TensorCases()),
                         [](const auto& instance) { return instance.param.name; });

// What a rank has allocated, against the formula of `mtctl explain memory`: 2 layers of two norms,
// half of 32 tokens of 16 in fp32. All ranks do the same.
TEST_F(TensorRanksTest, GatheredInputsAreKeptWhereAllRanksHaveRoom) {
  constexpr int64_t kGathered = 2 * 2 * 16 * 16 * 4;
  const auto roomy = RunOn(nullptr, {}, 2);
  const int64_t needed = memory::Total(MemoryIn(roomy));
  limit_ = 2 * needed;
  const auto enough = RunOn(nullptr, {}, 2);
  EXPECT_EQ(MemoryIn(enough), MemoryIn(roomy));
  limit_ = 2 * needed - 1;
  const auto again = RunOn(nullptr, {}, 2);
  ExpectClean(again, 2);
  EXPECT_EQ(Activations(roomy) - Activations(again), kGathered);
  EXPECT_EQ(needed - memory::Total(MemoryIn(again)), kGathered);
  train::ExpectEqualCurve(again[0].seen.steps, roomy[0].seen.steps);
}

// Each has its own memory, part of which kernels take that are loaded later.
TEST_F(TensorRanksTest, GatheredInputsAreKeptWhereEachGpuHasRoom) {
  kind_ = kernels::DeviceKind::kCuda;
  const auto run = [this](int64_t limit) {
    limit_ = limit;
    AsyncWorld world({});
    return RunOn(&world, {}, 1);
  };
  const memory::BytesByKind ample = MemoryIn(run(int64_t{1} << 40));
  const int64_t needed = memory::Total(ample) - ample[static_cast<size_t>(memory::Kind::kPinned)] +
                         memory::kLibraryReserveBytes;
  EXPECT_EQ(MemoryIn(run(needed)), ample);
  EXPECT_LT(memory::Total(MemoryIn(run(needed - 1))), memory::Total(ample));
}

// Two layers, so four branches, and the head; one microbatch.
TEST_F(TensorRanksTest, SumsAndGathersOfBackwardRunBesideWeightGradients) {
  const std::vector<std::string> small = {"training.global_batch_size=2",
                                          "parallel.bucket_size=64MiB"};
  AsyncWorld world({});
  RunOn(&world, small, 1);
  EXPECT_EQ(CountWaits(world, "linear.WeightGrad", "reduce_scatter"), 5);
  // Of each branch's gradient but the first, which nothing comes before, and the last, which the
  // embedding gathers: it clears its gradients first.
  EXPECT_EQ(CountWaits(world, "linear.WeightGrad", "all_gather"), 3);
  EXPECT_EQ(CountWaits(world, "add_norm.AddNormGrad", "all_gather"), 1);
  EXPECT_EQ(CountWaits(world, "zero", "all_gather"), 1);
  EXPECT_EQ(CountWaits(world, ".*", "reduce_scatter"), 5);
  // Inputs are kept. Where they are gathered, that is over by then: it comes before a sum.
  EXPECT_EQ(CountWaits(world, ".*", "all_gather"), 5);

  std::vector<std::string> whole_rows = small;
  whole_rows.emplace_back("parallel.sequence_parallel=false");
  AsyncWorld whole({});
  RunOn(&whole, whole_rows, 1);
  EXPECT_EQ(CountWaits(whole, "linear.WeightGrad", "all_reduce"), 4);
  // The last weight gradient completes the bucket of matrices.
  EXPECT_EQ(CountWaits(whole, "update.SquareSum", "all_reduce"), 1);
  EXPECT_EQ(CountWaits(whole, ".*", "all_reduce"), 5);
}

// Whatever the device could record; each rank says so once.
TEST_F(TensorRanksTest, NothingIsRecordedAndTheLogSaysWhy) {
  const auto eager = RunOn(nullptr, {}, 3);
  testing::internal::CaptureStderr();
  const auto asked = RunOn(nullptr, {"training.recordings=true"}, 3);
  const std::string log = testing::internal::GetCapturedStderr();
  ExpectClean(asked, 3);
  train::ExpectEqualCurve(asked[0].seen.steps, eager[0].seen.steps);
  const std::string said =
      "recordings off reason=\"the collectives of tensor ranks cannot be recorded\"";
  const size_t first = log.find(said);
  ASSERT_NE(first, std::string::npos) << log;
  const size_t second = log.find(said, first + 1);
  ASSERT_NE(second, std::string::npos) << log;
  EXPECT_EQ(log.find("recordings off", second + 1), std::string::npos) << log;
}

}  // namespace
}  // namespace mt::engine
