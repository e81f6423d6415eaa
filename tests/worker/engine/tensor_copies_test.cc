// Tensor ranks on asynchronous devices that share their memory, whose gathers and sums go by copies
// (worker/comm/copies), with forward's products whole or shard by shard beside them: the bits of
// the CPU in every order that is drawn, no wait, word or store that could be left out unseen, a
// rank that is lost, and memory that is not shared.
#include "worker/engine/tensor_copies.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/async/async_peer_memory.h"
#include "kernels/async/async_world.h"
#include "tests/sanitized.h"
#include "tests/worker/train/train_rig.h"
#include "worker/model/gpt_config.h"
#include "worker/parallel/groups/rank_groups.h"

namespace mt::engine {
namespace {

using kernels::async::AsyncWorld;
using kernels::async::Sharing;
using kernels::async::WaitName;
using model::ShardProducts;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

struct CopiesCase {
  const char* name;
  std::vector<std::string> overrides;
  ShardProducts products = ShardProducts::kAlways;
};

std::vector<CopiesCase> CopiesCases() {
  return {
      {"cut_rows", {}},
      {"cut_rows_whole_products", {}, ShardProducts::kNever},
      {"bf16", {"training.precision=bf16"}},
      {"fp16", {"training.precision=fp16"}, ShardProducts::kNever},
      {"whole_rows", {"parallel.sequence_parallel=false"}},
      {"parallel_residual", {"model.parallel_residual=true"}},
      {"selective",
       {"training.recompute.mode=selective", "model.activation=swiglu", "model.ffn_size=32"}},
      {"full", {"training.recompute.mode=full", "model.qk_norm=true"}},
      {"ends_inside", {"parallel.pipeline=2", "model.hidden_dropout=0"}},
      {"replicas", {"parallel.data=2", "parallel.zero_stage=1"}},
      {"four", {"parallel.tensor=4", "model.heads=4"}},
      {"four_bf16", {"parallel.tensor=4", "model.heads=4", "training.precision=bf16"}},
  };
}

// How the ranks of a run share, and what is left out of it.
struct CopiesRun {
  AsyncWorld* world = nullptr;  // nullptr: on the CPU
  ShardProducts products = ShardProducts::kNever;
  int64_t steps = 1;
  int64_t limit = 0;  // bytes of all ranks' memory
  std::function<Sharing(int rank)> sharing = [](int) { return Sharing::kAll; };
  std::function<void(int rank, train::TrainArgs* args)> adjust = {};
};

class TensorCopiesTest : public train::TrainTest {
 protected:
  std::vector<train::RankOutcome> RunWith(const std::vector<std::string>& more,
                                          const CopiesRun& run) {
    std::vector<std::string> overrides = {"parallel.tensor=2", "training.precision=fp32",
                                          "training.global_batch_size=4",
                                          "parallel.bucket_size=1024", "checkpoint.directory=none"};
    overrides.push_back(fmt::format("training.train_iters={}", run.steps));
    overrides.insert(overrides.end(), more.begin(), more.end());
    return train::RunJob(train::TinyJob(overrides),
                         {.root = dir_.path(),
                          .memory_limit_bytes = run.limit,
                          .world = run.world,
                          .sharing = run.sharing,
                          .adjust = [&run](int rank, train::TrainArgs* args) {
                            args->tensor_copies.shard_products = run.products;
                            if (run.adjust) run.adjust(rank, args);
                          }});
  }
  // Whether what was left out of a run is seen.
  static bool IsSeen(const AsyncWorld& world, const std::vector<train::RankOutcome>& ranks) {
    return !world.Races().empty() || !world.EarlyFrees().empty() ||
           std::ranges::any_of(ranks, [](const auto& rank) { return !rank.result.status.ok(); });
  }
};

class TensorCopiesCaseTest : public TensorCopiesTest,
                             public testing::WithParamInterface<CopiesCase> {};

TEST_P(TensorCopiesCaseTest, EveryOrderGivesTheCurveOfTheCpu) {
  const CopiesCase& c = GetParam();
  const auto inline_run = RunWith(c.overrides, {.products = c.products, .steps = 3});
  ExpectClean(inline_run, 3);
  for (uint64_t seed = kSanitized ? 1 : 0; seed < 3; ++seed) {
    AsyncWorld world({.seed = seed});
    int64_t sums = 0;
    const auto count = [&sums](int rank, train::TrainArgs* args) {
      if (rank != 0) return;
      args->after_step = [&sums, groups = args->groups](int64_t, const params::ParamStore&) {
        ASSERT_NE(groups->tp_copies(), nullptr);
        EXPECT_EQ(groups->tp()->Stats().of(comm::CommOp::kAllGather).num_calls, 0);
        const comm::CommStats stats = groups->tp_copies()->Stats();
        sums = stats.of(comm::CommOp::kReduceScatter).num_calls +
               stats.of(comm::CommOp::kAllReduce).num_calls;
      };
    };
    const auto run = RunWith(
        c.overrides, {.world = &world, .products = c.products, .steps = 3, .adjust = count});
    ExpectClean(run, 3);
    train::ExpectEqualCurve(run[0].seen.steps, inline_run[0].seen.steps);
    EXPECT_THAT(world.Races(), IsEmpty()) << seed;
    EXPECT_THAT(world.EarlyFrees(), IsEmpty()) << seed;
    EXPECT_GT(sums, 10) << "by copies";
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, TensorCopiesCaseTest, testing::ValuesIn(CopiesCases()),
                         [](const auto& instance) { return instance.param.name; });

// Where memory does not suffice to keep them, gathers write the buffer that backward's use too.
TEST_F(TensorCopiesTest, InputsThatAreGatheredAgainHaveTheSameBits) {
  const auto bytes = [](const std::vector<train::RankOutcome>& ranks) {
    return memory::Total(train::MemoryOf(ranks[0].seen.steps.back()));
  };
  for (const ShardProducts products : {ShardProducts::kNever, ShardProducts::kAlways}) {
    const auto inline_run = RunWith({}, {.products = products, .steps = 3});
    AsyncWorld roomy({});
    const auto keeping = RunWith({}, {.world = &roomy, .products = products, .steps = 3});
    AsyncWorld world({.seed = 2});
    const auto again = RunWith(
        {}, {.world = &world, .products = products, .steps = 3, .limit = 2 * bytes(keeping) - 1});
    ExpectClean(again, 3);
    EXPECT_LT(bytes(again), bytes(keeping));
    train::ExpectEqualCurve(again[0].seen.steps, inline_run[0].seen.steps);
    EXPECT_THAT(world.Races(), IsEmpty());
    EXPECT_THAT(world.EarlyFrees(), IsEmpty());
  }
}

// By shards alone where something runs beside them, else whole, on devices of either kind.
TEST_F(TensorCopiesTest, ProductsGoByShardsWhereCopiesRunBesideThem) {
  for (const Sharing sharing : {Sharing::kAll, Sharing::kWordsAlone}) {
    const bool beside = sharing == Sharing::kAll;
    const auto inline_run = RunWith(
        {}, {.products = beside ? ShardProducts::kAlways : ShardProducts::kNever, .steps = 2});
    AsyncWorld world({.seed = 1});
    testing::internal::CaptureStderr();  // a line for what was refused
    const auto run = RunWith(
        {}, {.world = &world, .products = ShardProducts::kBeside, .steps = 2, .sharing = [=](int) {
               return sharing;
             }});
    static_cast<void>(testing::internal::GetCapturedStderr());
    ExpectClean(run, 2);
    train::ExpectEqualCurve(run[0].seen.steps, inline_run[0].seen.steps);
    EXPECT_THAT(world.Races(), IsEmpty());
  }
  const auto never = RunWith({}, {.steps = 2});
  const auto alone = RunWith({}, {.products = ShardProducts::kBeside, .steps = 2});
  train::ExpectEqualCurve(alone[0].seen.steps, never[0].seen.steps);
}

// Where nobody says otherwise, on a GPU: not of few rows, nor of such as begin between vectors.
TEST(TensorCopiesRowsTest, ManyRowsInWholeVectorsPay) {
  EXPECT_TRUE(TensorCopies::PaysFor(1024));
  EXPECT_TRUE(TensorCopies::PaysFor(8192));
  EXPECT_FALSE(TensorCopies::PaysFor(1016));
  EXPECT_FALSE(TensorCopies::PaysFor(1028));
  EXPECT_FALSE(TensorCopies::PaysFor(2049));
}

// Products of shards are products: the same to rounding, whatever a processor's edges of tiles do.
TEST_F(TensorCopiesTest, ProductsOfShardsAreTheProducts) {
  const auto whole = RunWith({"training.precision=fp64"}, {.steps = 3});
  const auto shards =
      RunWith({"training.precision=fp64"}, {.products = ShardProducts::kAlways, .steps = 3});
  ExpectClean(shards, 3);
  train::ExpectSameCurve(shards[0].seen.steps, whole[0].seen.steps, 1e-13, 1e-11);
}

struct LeftOut {
  const char* name;
  std::vector<std::string> overrides;
  ShardProducts products = ShardProducts::kAlways;
};

class TensorCopiesDropTest : public TensorCopiesTest,
                             public testing::WithParamInterface<LeftOut> {};

// Of one microbatch through one layer. Links and replicas have no words here.
TEST_P(TensorCopiesDropTest, NoWaitWordOrStoreCanBeLeftOut) {
  std::vector<std::string> small = {"model.layers=1", "training.global_batch_size=2"};
  small.insert(small.end(), GetParam().overrides.begin(), GetParam().overrides.end());
  const auto run = [&](AsyncWorld* world) {
    return RunWith(small, {.world = world, .products = GetParam().products});
  };
  AsyncWorld whole({});
  ExpectClean(run(&whole), 1);
  EXPECT_THAT(whole.Races(), IsEmpty());
  int64_t dropped = 0;
  std::vector<std::string> unseen;
  for (const WaitName& wait : whole.NeededWaits()) {
    if (wait.rank != 0) continue;  // ranks do the same
    const bool word = wait.site.find(" waits for word ") != std::string::npos ||
                      wait.site.find(" stores ") != std::string::npos;
    if (!word && wait.site.find(" waits for ") == std::string::npos) continue;
    ++dropped;
    if (kSanitized && dropped % 5 != 0) continue;
    AsyncWorld world({.drop = wait});
    const auto ranks = run(&world);
    if (!IsSeen(world, ranks)) unseen.push_back(wait.site);
  }
  EXPECT_GT(dropped, 40);
  // A credit (word 0: the peer has entered an exchange) can be done without where the exchange
  // before it came behind the last use of what is written: there is one between any two sums, and
  // what a gather writes was read before the sum in front of it. Where nothing comes between them
  // each is needed (tests/worker/async/copies_test.cc).
  EXPECT_THAT(unseen, testing::Each(HasSubstr(" waits for word 0 of rank 0 to be ")));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, TensorCopiesDropTest,
    testing::Values(LeftOut{"cut_rows", {}},
                    LeftOut{"cut_rows_whole_products", {}, ShardProducts::kNever},
                    LeftOut{"selective", {"training.recompute.mode=selective"}},
                    LeftOut{"whole_rows", {"parallel.sequence_parallel=false"}}),
    [](const auto& instance) { return instance.param.name; });

// A rank leaves in the middle of a run. Its peer, which nobody has told yet, waits for it in the
// next step: those waits end, with whatever was there, and the peer hears the agent's word then, or
// finds the group of all ranks broken, whichever comes first.
TEST_F(TensorCopiesTest, ALostRankEndsTheOthersWaits) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    AsyncWorld world({.seed = seed});
    bool came = false;
    const auto run = RunWith(
        {}, {.world = &world,
             .products = ShardProducts::kAlways,
             .steps = 3,
             .adjust = [&came](int rank, auto* args) {
               args->end_of_step = [&came, rank, groups = args->groups](int64_t step, StepVector*) {
                 if (rank == 1 && step == 2) groups->tp_copies()->Abort("lost");
                 if (rank == 0 && step == 3) {
                   came = true;  // the vector is here: all before it on the device has ended
                   groups->Abort("told of it");
                 }
               };
             }});
    EXPECT_THAT(run[1].result.status.ToString(), HasSubstr("lost"));
    EXPECT_THAT(run[0].result.status.ToString(),
                HasSubstr(came ? "told of it" : "group control/0, rank 0 (world 0) of 2"));
  }
}

// Nothing by copies: the same bits, and a line that says why.
TEST_F(TensorCopiesTest, MemoryThatIsNotSharedGoesByTheOtherGroup) {
  const auto inline_run = RunWith({}, {.steps = 2});
  for (const Sharing refusal : {Sharing::kNoPath, Sharing::kNoExport, Sharing::kWordsAlone}) {
    AsyncWorld world({.seed = 3});
    testing::internal::CaptureStderr();
    const auto run = RunWith({}, {.world = &world, .steps = 2, .sharing = [=](int rank) {
                                    return rank == 1 ? refusal : Sharing::kAll;
                                  }});
    const std::string log = testing::internal::GetCapturedStderr();
    ExpectClean(run, 2);
    train::ExpectEqualCurve(run[0].seen.steps, inline_run[0].seen.steps);
    EXPECT_THAT(world.Races(), IsEmpty());
    EXPECT_THAT(world.EarlyFrees(), IsEmpty());
    EXPECT_THAT(log, HasSubstr("by NCCL instead of copies, which is slower"));
    EXPECT_THAT(log, HasSubstr(refusal == Sharing::kNoPath     ? "there is no path between GPUs"
                               : refusal == Sharing::kNoExport ? "this device names no memory"
                                                               : "its memory cannot be shared"));
  }
}

// The race itself is of the clock; whatever it finds, bits are the same and each call has its line.
TEST_F(TensorCopiesTest, RoutesAreRacedAndSaid) {
  const auto inline_run = RunWith({}, {.steps = 2});
  AsyncWorld world({});
  testing::internal::CaptureStderr();
  const auto race = [](int, train::TrainArgs* args) { args->tensor_copies.race = true; };
  const auto run =
      RunWith({"training.deterministic=false"}, {.world = &world, .steps = 2, .adjust = race});
  const std::string log = testing::internal::GetCapturedStderr();
  ExpectClean(run, 2);
  train::ExpectEqualCurve(run[0].seen.steps, inline_run[0].seen.steps);
  EXPECT_THAT(world.Races(), IsEmpty());
  EXPECT_THAT(log, HasSubstr("a collective inside layers group=tp/0"));
  // 32 tokens of 16 channels in fp32.
  EXPECT_THAT(log, HasSubstr("all_gather of 2048 bytes: "));
  EXPECT_THAT(log, HasSubstr("reduce_scatter of 2048 bytes: "));
  EXPECT_THAT(log, Not(HasSubstr("all_reduce of")));
  AsyncWorld second({});
  testing::internal::CaptureStderr();
  RunWith({"training.deterministic=true"}, {.world = &second, .steps = 1, .adjust = race});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), Not(HasSubstr("a collective inside layers")))
      << "no clock decides over bits";
}

}  // namespace
}  // namespace mt::engine
