// GradientSync over meshes of threads: the same weights as on one rank, the same bits whatever ZeRO
// stage, overlap and rerun; norms that count each element once; tied tables; failures.
#include "worker/parallel/gradient_sync.h"

#include <cmath>
#include <limits>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/sanitized.h"
#include "tests/worker/parallel/sync_rig.h"

namespace mt::parallel {
namespace {

using kernels::DType;
using layout::MeshSizes;
using params::ParamId;

constexpr int64_t kSteps = 20;

class MeshTest : public ::testing::TestWithParam<std::tuple<MeshSizes, DType>> {
 protected:
  MeshSizes mesh() const { return std::get<0>(GetParam()); }
  DType dtype() const { return std::get<1>(GetParam()); }
};

TEST_P(MeshTest, StageOverlapAndRerunKeepEveryBit) {
  constexpr int64_t kRunSteps = kSanitized ? 8 : kSteps;
  const auto train = [&](int zero_stage, bool overlap) {
    const RigLayout layout{
        .mesh = mesh(), .zero_stage = zero_stage, .overlap = overlap, .dtype = dtype()};
    auto result = std::make_unique<RigMesh>(layout, RigConstants(mesh()));
    result->Train(kRunSteps, RandomGradient, /*with_weights=*/true);
    return result;
  };
  const auto base = train(0, false);
  AssembleWeights(*base);  // replicas, replicated parameters and tied tables agree
  EXPECT_EQ(base->rank(0).scalars().adam_step, kRunSteps);
  for (const int zero_stage : {0, 1}) {
    for (const bool overlap : {false, true}) {
      const auto other = train(zero_stage, overlap);
      ExpectSameBits(*base, *other, fmt::format("zero {} overlap {}", zero_stage, overlap));
    }
  }
}

class OneRankTest : public ::testing::TestWithParam<MeshSizes> {};

TEST_P(OneRankTest, WeightsAndNormAgreeWithIt) {
  const MeshSizes mesh = GetParam();
  RigMesh many({.mesh = mesh, .zero_stage = 1, .overlap = true}, RigConstants(mesh));
  RigMesh one({.mesh = {}, .stands_for = mesh}, RigConstants(mesh));
  many.Train(kSteps, RandomGradient, true);
  one.Train(kSteps, RandomGradient, true);
  const double norm = one.rank(0).scalars().grad_norm;
  EXPECT_GT(norm, 1.0) << "clipping is at work";
  for (int r = 0; r < many.size(); ++r) {
    EXPECT_NEAR(many.rank(r).scalars().grad_norm, norm, 1e-12 * norm);
  }
  const auto expected = AssembleWeights(one);
  const auto actual = AssembleWeights(many);
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, values] : expected) {
    double difference = 0;
    double size = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      difference += std::pow(actual.at(name)[i] - values[i], 2);
      size += values[i] * values[i];
    }
    EXPECT_LE(std::sqrt(difference), 1e-12 * std::sqrt(size)) << name;
  }
}

constexpr MeshSizes kMeshes[] = {
    {}, {.dp = 2}, {.dp = 4}, {.tp = 2, .dp = 2, .pp = 2}, {.tp = 4, .dp = 2}, {.tp = 2, .pp = 2}};

std::string MeshName(const MeshSizes& m) { return fmt::format("tp{}dp{}pp{}", m.tp, m.dp, m.pp); }

INSTANTIATE_TEST_SUITE_P(Meshes, MeshTest,
                         ::testing::Combine(::testing::ValuesIn(kMeshes),
                                            ::testing::Values(DType::kF64, DType::kF32,
                                                              DType::kBf16)),
                         [](const auto& instance) {
                           return fmt::format("{}_{}", MeshName(std::get<0>(instance.param)),
                                              kernels::Name(std::get<1>(instance.param)));
                         });
INSTANTIATE_TEST_SUITE_P(Meshes, OneRankTest, ::testing::ValuesIn(kMeshes),
                         [](const auto& instance) { return MeshName(instance.param); });

// Small integers: every sum and square is exact, so one wrong element shows.
double IntegerGradient(const Term& term) { return std::floor(4 * RandomGradient(term)); }

TEST(GradientSyncTest, TheNormCountsEachElementOnce) {
  const MeshSizes mesh{.tp = 2, .dp = 2, .pp = 2};
  RigMesh one({.mesh = {}, .stands_for = mesh}, RigConstants(mesh));
  one.Train(1, IntegerGradient, false);
  const double expected = one.rank(0).vector().sum_squares;
  EXPECT_GT(expected, 0);
  for (const int zero_stage : {0, 1}) {
    RigMesh many({.mesh = mesh, .zero_stage = zero_stage, .dtype = DType::kF32},
                 RigConstants(mesh));
    many.Train(1, IntegerGradient, false);
    for (int r = 0; r < many.size(); ++r) {
      EXPECT_EQ(many.rank(r).vector().sum_squares, expected) << "zero " << zero_stage;
      EXPECT_EQ(many.rank(r).vector().nonfinite, 0);
      EXPECT_EQ(many.rank(r).vector().loss, 1.5 * mesh.dp);
      EXPECT_EQ(many.rank(r).vector().tokens, kTokens * mesh.dp);
    }
  }
}

TEST(GradientSyncTest, TheEndOfStepVectorIsSummedOverTheWorld) {
  const MeshSizes mesh{.tp = 2, .dp = 2, .pp = 2};
  RigMesh many({.mesh = mesh}, RigConstants(mesh));
  many.Run([&](RigRank& rank) {
    const int me = rank.at().tp + 2 * (rank.at().dp + 2 * rank.at().pp);
    struct {
      kernels::EndOfStep sums;
      double more[2];  // of the engine, behind what the update reads
    } v{.sums = {.sum_squares = 1.5 + me,
                 .nonfinite = me == 3 ? 2.0 : 0.0,
                 .loss = 10.0 * me,
                 .tokens = 8},
        .more = {me == 0 ? 5.0 : 0.0, me % 2 == 0 ? 1.0 : 0.0}};
    ASSERT_TRUE(rank.sync().ReduceEndOfStep(rank.stream(), {&v, DType::kF64, {6}}).ok());
    EXPECT_EQ(v.sums.sum_squares, 12.0 + 28.0);
    EXPECT_EQ(v.sums.nonfinite, 2.0);
    EXPECT_EQ(v.sums.loss, 280.0);
    EXPECT_EQ(v.sums.tokens, 64.0);
    EXPECT_EQ(v.more[0], 5.0);
    EXPECT_EQ(v.more[1], 4.0);
  });
}

TEST(GradientSyncTest, ANonFiniteElementIsSeenOnceByAll) {
  const MeshSizes mesh{.tp = 2, .dp = 2, .pp = 2};
  // In a parameter that every tensor rank holds, a partial one, the word table of the last stage
  // only, a matrix.
  for (const char* name : {"layers.1.out.bias", "layers.2.norm.weight", "embedding.word.weight",
                           "layers.3.out.weight"}) {
    const auto spoiled = [name](const Term& term) {
      const bool last_stage = term.spec->name != "embedding.word.weight" || term.stage == 1;
      return term.spec->name == name && term.index == 5 && term.replica == 1 && last_stage
                 ? std::numeric_limits<double>::infinity()
                 : RandomGradient(term);
    };
    RigMesh many({.mesh = mesh, .zero_stage = 1, .overlap = true, .dtype = DType::kF32},
                 RigConstants(mesh));
    RigMesh before({.mesh = mesh, .zero_stage = 1, .dtype = DType::kF32}, RigConstants(mesh));
    many.Train(1, spoiled, false);
    for (int r = 0; r < many.size(); ++r) {
      EXPECT_EQ(many.rank(r).vector().nonfinite, 1) << name;
      EXPECT_EQ(many.rank(r).scalars().skip, 1) << name;
      EXPECT_EQ(
          std::memcmp(many.rank(r).store().weights().data, before.rank(r).store().weights().data,
                      static_cast<size_t>(before.rank(r).store().weights().Bytes())),
          0)
          << name << ": a skipped step changes nothing";
    }
  }
}

TEST(GradientSyncTest, BothEndsOfATiedTableHoldOneSum) {
  const MeshSizes mesh{.dp = 2, .pp = 2};
  for (const int zero_stage : {0, 1}) {
    RigMesh many({.mesh = mesh, .zero_stage = zero_stage, .dtype = DType::kF32},
                 RigConstants(mesh));
    many.Run([&](RigRank& rank) {
      rank.FillGradients(0, RandomGradient, false);
      ASSERT_TRUE(rank.FinishStep().ok());
      ASSERT_TRUE(rank.sync().WaitAllWeights(rank.stream()).ok());
      const ParamId table = rank.registry().Find("embedding.word.weight").value();
      const int bucket = rank.store().layout().BucketOf(table);
      const params::Slice own = rank.store().UpdatedSlice(bucket);
      const int64_t first = rank.store().layout().OffsetOf(table);
      for (int64_t i = 0; i < rank.registry()[table].Held().NumElements(); ++i) {
        if (first + i < own.begin || first + i >= own.begin + own.count) continue;
        float stages[2] = {0, 0};
        for (int s = 0; s < 2; ++s) {
          Term term{.spec = &rank.registry()[table], .index = i, .stage = s};
          const auto left = static_cast<float>(RandomGradient(term));
          term.replica = 1;
          stages[s] = left + static_cast<float>(RandomGradient(term));
        }
        ASSERT_EQ(rank.store().Grad(table).Data<float>()[i], stages[0] + stages[1]) << i;
      }
    });
  }
}

TEST(GradientSyncTest, TheFirstErrorSticks) {
  for (const bool overlap : {false, true}) {
    RigMesh many({.mesh = {.dp = 2}, .zero_stage = 1, .overlap = overlap}, RigConstants({.dp = 2}));
    many.Run([&](RigRank& rank) {
      if (rank.at().dp == 1) rank.dp_group()->Abort("pulled the plug");
      const Status first = rank.Step(0, RandomGradient, false);
      EXPECT_FALSE(first.ok());
      double vector[4] = {};
      EXPECT_EQ(rank.sync().ReduceEndOfStep(rank.stream(), {vector, DType::kF64, {4}}), first);
      EXPECT_EQ(rank.sync().WaitAllWeights(rank.stream()), first);
      EXPECT_EQ(rank.sync().status(), first);
    });
  }
}

TEST(GradientSyncDeathTest, EveryBucketOnce) {
  RigMesh one({.mesh = {}}, RigConstants({}));
  RigRank& rank = one.rank(0);
  kernels::EndOfStep vector;
  const kernels::Tensor out{&vector.sum_squares, DType::kF64, {2}};
  rank.sync().BucketReady(rank.stream(), 0);
  EXPECT_DEATH(rank.sync().BucketReady(rank.stream(), 0), "reported twice");
  EXPECT_DEATH((void)rank.sync().FinishGradients(rank.stream(), out), "was not reported");
}

TEST(GradientSyncTest, AStepLeftEarlyEndsItsCommunication) {
  // Rank 1 never reports a bucket; rank 0 gives up with the sum under way. Neither may wait for the
  // deadline of a minute.
  const auto begin = std::chrono::steady_clock::now();
  {
    RigMesh many({.mesh = {.dp = 2}, .overlap = true}, RigConstants({.dp = 2}));
    many.rank(0).sync().BucketReady(many.rank(0).stream(), 0);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

}  // namespace
}  // namespace mt::parallel
