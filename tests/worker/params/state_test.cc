// The optimizer's state over replicas and initial values over all layouts: the parts are the pieces
// of one logical tensor, each exactly once, bit for bit.
#include <cstring>
#include <map>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "worker/params/init.h"
#include "worker/params/state_parts.h"

namespace mt::params {
namespace {

using kernels::DType;
using kernels::Tensor;

// How units of 4 rows and of 5 columns are stored.
struct Units {
  int64_t rows = 4, columns = 5;
};
constexpr Units kPadded = {.rows = 7, .columns = 9};

// A rank's part of six parameters: cut by rows and padded, by columns, joined, vectors.
struct Rank {
  Rank(int64_t tp_rank, int64_t tp_size, const StateShare& share, int64_t dp_size, DType dtype,
       const Units& units = {}) {
    const int64_t rows = 96 / tp_size;
    registry.Add({.name = "table",
                  .shape = {67, 40},  // odd first indices where rows are cut
                  .stored = {rows, 40},
                  .begin = {rows * tp_rank, 0},
                  .region = Region::kWordEmbedding,
                  .init = InitKind::kNormal,
                  .std = 0.02});
    const PaddedUnits of_rows{.dim = 0, .size = 4, .stored = units.rows};
    for (const char* name : {"q", "k"}) {
      registry.Add({.name = name,
                    .shape = {32, 33},
                    .stored = {8 / tp_size * units.rows, 33},
                    .begin = {32 / tp_size * tp_rank, 0},
                    .units = of_rows,
                    .init = InitKind::kNormal,
                    .std = 0.5,
                    .layer = 0,
                    .joined = *name == 'k'});
    }
    registry.Add({.name = "out",
                  .shape = {75, 120},
                  .stored = {75, 24 / tp_size * units.columns},
                  .begin = {0, 120 / tp_size * tp_rank},
                  .by_columns = true,
                  .units = PaddedUnits{.dim = 1, .size = 5, .stored = units.columns},
                  .init = InitKind::kNormal,
                  .std = 0.02,
                  .layer = 0});
    registry.Add({.name = "bias",
                  .shape = {2048},
                  .stored = {512 / tp_size * units.rows},
                  .begin = {2048 / tp_size * tp_rank, 0},
                  .units = of_rows,
                  .region = Region::kShardedVector,
                  .init = InitKind::kNormal,
                  .std = 1});
    registry.Add({.name = "gain",
                  .shape = {1500},
                  .stored = {1500},
                  .region = Region::kReplicatedVector,
                  .init = InitKind::kOne});
    layout.emplace(
        FlatLayout::Args{.registry = &registry, .dp_size = dp_size, .min_bucket_elements = 1000});
    store.emplace(&registry, &*layout, dtype, share);
    memory::MemoryPlan plan;
    store->Plan(&plan);
    memory = memory::Memory::Allocate(backend->device(), plan, int64_t{1} << 30).value();
    store->Bind(*memory);
  }
  void Initialize() {
    const auto stream = backend->device().CreateStream(kernels::StreamPriority::kLow);
    InitializeParams(
        *stream, {.random = &backend->random(), .vector = &backend->vector(), .seed = 99}, *store);
  }

  std::unique_ptr<kernels::Backend> backend = kernels::cpu::MakeCpuBackend({}).value();
  Registry registry;
  std::optional<FlatLayout> layout;
  std::optional<ParamStore> store;
  std::unique_ptr<memory::Memory> memory;
};

constexpr int32_t kNumParams = 6;

// Elements of a box without the padding between them.
std::vector<char> Packed(const base::Runs& places, const kernels::Shape& shape, const void* from,
                         int64_t element_bytes) {
  std::vector<char> packed(static_cast<size_t>(shape.NumElements() * element_bytes));
  base::CopyFromRuns(places, shape.NumElements(), element_bytes, from, packed.data());
  return packed;
}

// Whether all that lies between the elements of a box, and behind them, is zero.
bool IsZeroBetween(const base::Runs& places, const kernels::Shape& shape, const Tensor& all) {
  const auto* const bytes = static_cast<const char*>(all.data);
  std::vector<char> copy(bytes, bytes + all.Bytes());
  const int64_t element_bytes = kernels::SizeOf(all.dtype);
  const std::vector<char> zeros(static_cast<size_t>(shape.NumElements() * element_bytes), 0);
  base::CopyToRuns(places, shape.NumElements(), element_bytes, zeros.data(), copy.data());
  return std::all_of(copy.begin(), copy.end(), [](char byte) { return byte == 0; });
}

// Copies a rectangle [rows, columns] that begins at `begin` of the logical tensor; counts how often
// each element was written.
struct Logical {
  explicit Logical(const ParamSpec& spec, int64_t element_bytes)
      : columns(spec.shape.rank() == 2 ? spec.shape[1] : 1),
        bytes(element_bytes),
        data(static_cast<size_t>(spec.shape.NumElements() * element_bytes)),
        times(static_cast<size_t>(spec.shape.NumElements()), 0) {}

  void Put(const std::array<int64_t, 2>& begin, const kernels::Shape& shape, const void* from) {
    const int64_t width = shape.rank() == 2 ? shape[1] : 1;
    for (int64_t row = 0; row < shape[0]; ++row) {
      const int64_t first = (begin[0] + row) * columns + begin[1];
      std::memcpy(&data[static_cast<size_t>(first * bytes)],
                  static_cast<const char*>(from) + row * width * bytes,
                  static_cast<size_t>(width * bytes));
      for (int64_t i = 0; i < width; ++i) ++times[static_cast<size_t>(first + i)];
    }
  }

  int64_t columns;
  int64_t bytes;
  std::vector<char> data;
  std::vector<int> times;
};

class InitOverTensorRanksTest : public ::testing::TestWithParam<DType> {
 protected:
  static void ExpectTheUnionIsOneRanks(const Rank& one, int64_t tp_size, DType dtype,
                                       const Units& units);
};

// `one` has no padding.
void InitOverTensorRanksTest::ExpectTheUnionIsOneRanks(const Rank& one, int64_t tp_size,
                                                       DType dtype, const Units& units) {
  std::vector<Logical> whole;
  for (const ParamSpec& spec : one.registry.params()) {
    whole.emplace_back(spec, kernels::SizeOf(dtype));
  }
  for (int64_t tp_rank = 0; tp_rank < tp_size; ++tp_rank) {
    Rank part(tp_rank, tp_size, {}, 1, dtype, units);
    part.Initialize();
    for (int32_t p = 0; p < kNumParams; ++p) {
      const ParamSpec& spec = part.registry[ParamId{p}];
      const Tensor weight = part.store->Weight(ParamId{p});
      const std::vector<char> held =
          Packed(spec.Places(), spec.Held(), weight.data, kernels::SizeOf(dtype));
      whole[static_cast<size_t>(p)].Put(spec.begin, spec.Held(), held.data());
      EXPECT_TRUE(IsZeroBetween(spec.Places(), spec.Held(), weight)) << spec.name;
    }
  }
  for (int32_t p = 0; p < kNumParams; ++p) {
    const Logical& logical = whole[static_cast<size_t>(p)];
    EXPECT_EQ(
        std::memcmp(logical.data.data(), one.store->Weight(ParamId{p}).data, logical.data.size()),
        0)
        << one.registry[ParamId{p}].name << " over " << tp_size;
    EXPECT_EQ(std::count(logical.times.begin(), logical.times.end(), 0), 0);
  }
}

TEST_P(InitOverTensorRanksTest, TheUnionIsOneRanksBitForBit) {
  Rank one(0, 1, {}, 1, GetParam());
  one.Initialize();
  for (const int64_t tp_size : {2, 4, 8}) ExpectTheUnionIsOneRanks(one, tp_size, GetParam(), {});
}

TEST_P(InitOverTensorRanksTest, PaddedUnitsHoldTheSameValues) {
  Rank one(0, 1, {}, 1, GetParam());
  one.Initialize();
  for (const int64_t tp_size : {1, 2, 8}) {
    ExpectTheUnionIsOneRanks(one, tp_size, GetParam(), kPadded);
  }
}

TEST_P(InitOverTensorRanksTest, MastersRoundToTheWeights) {
  for (const int64_t r : {0, 1, 2, 3, 4, 5}) {
    Rank rank(1, 2, {.zero_stage = 1, .dp_rank = r / 2}, 3, GetParam(),
              r % 2 == 0 ? Units{} : kPadded);
    rank.Initialize();
    const Tensor weights = rank.store->weights();
    const std::vector<char> before(static_cast<const char*>(weights.data),
                                   static_cast<const char*>(weights.data) + weights.Bytes());
    const auto stream = rank.backend->device().CreateStream(kernels::StreamPriority::kLow);
    RoundMaster(*stream, rank.backend->vector(), *rank.store);
    EXPECT_EQ(std::memcmp(before.data(), weights.data, before.size()), 0) << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, InitOverTensorRanksTest,
                         ::testing::Values(DType::kF64, DType::kF32, DType::kBf16, DType::kF16),
                         [](const auto& instance) {
                           return std::string(kernels::Name(instance.param));
                         });

class StatePartsTest : public ::testing::TestWithParam<std::tuple<int, DType, PartsOf, bool>> {};

// Every replica's parts of the master are copied to their place in the logical tensor.
TEST_P(StatePartsTest, TheReplicasPartsAreTheTensorEachElementOnce) {
  const auto [zero_stage, dtype, which, padded] = GetParam();
  Rank one(0, 1, {}, 1, kernels::AccumulatorOf(dtype));
  one.Initialize();
  constexpr int64_t kReplicas = 3;
  constexpr int64_t kTensorRanks = 2;
  const int64_t element_bytes = kernels::SizeOf(kernels::AccumulatorOf(dtype));
  for (int32_t p = 0; p < kNumParams; ++p) {
    const ParamId id{p};
    Logical logical(one.registry[id], element_bytes);
    size_t most_parts = 0;
    for (int64_t r = 0; r < kReplicas * kTensorRanks; ++r) {
      Rank rank(r % kTensorRanks, kTensorRanks,
                {.zero_stage = zero_stage, .dp_rank = r / kTensorRanks}, kReplicas, dtype,
                padded ? kPadded : Units{});
      rank.Initialize();
      const std::vector<StatePart> parts = StateParts(*rank.store, id, which);
      most_parts = std::max(most_parts, parts.size());
      for (const StatePart& part : parts) {
        const kernels::Shape span{part.places.Span(part.shape.NumElements())};
        EXPECT_EQ(part.master.shape, span);
        EXPECT_EQ(part.m.shape, span);
        EXPECT_EQ(part.v.shape, span);
        EXPECT_EQ(part.m.dtype, kernels::AccumulatorOf(dtype));
        const std::vector<char> held =
            Packed(part.places, part.shape, part.master.data, element_bytes);
        logical.Put(part.begin, part.shape, held.data());
        EXPECT_TRUE(IsZeroBetween(part.places, part.shape, part.master));
        // Moments are this part's alone: nobody has written there.
        for (const Tensor& moment : {part.m, part.v}) {
          auto* bytes = static_cast<char*>(moment.data);
          EXPECT_TRUE(std::all_of(bytes, bytes + moment.Bytes(), [](char b) { return b == 0; }));
          std::memset(bytes, 1, static_cast<size_t>(moment.Bytes()));
        }
      }
    }
    EXPECT_EQ(std::memcmp(logical.data.data(), one.store->Weight(id).data, logical.data.size()), 0)
        << one.registry[id].name;
    const bool replicated_over_tp = one.registry[id].name == "gain";
    const bool whole_each = which == PartsOf::kUpdatedState && zero_stage == 0;
    const int expected = (replicated_over_tp ? 2 : 1) * (whole_each ? 3 : 1);
    for (const int times : logical.times) ASSERT_EQ(times, expected) << one.registry[id].name;
    if (one.registry[id].name == "out" && !whole_each) {
      EXPECT_EQ(most_parts, 3U) << "a slice that begins and ends within rows is tested";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Stages, StatePartsTest,
    ::testing::Combine(::testing::Values(0, 1), ::testing::Values(DType::kF64, DType::kBf16),
                       ::testing::Values(PartsOf::kUpdatedState, PartsOf::kOwnSlices),
                       ::testing::Bool()),
    [](const auto& instance) {
      return fmt::format("zero{}_{}_{}{}", std::get<0>(instance.param),
                         kernels::Name(std::get<1>(instance.param)),
                         std::get<2>(instance.param) == PartsOf::kOwnSlices ? "own" : "updated",
                         std::get<3>(instance.param) ? "_padded" : "");
    });

// Bytes per element of weights, gradients, optimizer: the table of worker/parallel/README.md,
// "Memory".
TEST(StateMemoryTest, BytesFollowTheFormula) {
  struct Case {
    DType dtype;
    int zero_stage;
    int moments;
    double weights, gradients, optimizer;
  };
  constexpr double kReplicas = 4;
  for (const Case& c :
       {Case{DType::kBf16, 0, 2, 2, 4, 12}, Case{DType::kF16, 1, 2, 2, 4, 12 / kReplicas},
        Case{DType::kF32, 0, 2, 4, 4, 8}, Case{DType::kF32, 1, 2, 4, 4, 8 / kReplicas},
        Case{DType::kF64, 1, 2, 8, 8, 16 / kReplicas}, Case{DType::kF32, 1, 1, 4, 4, 4 / kReplicas},
        Case{DType::kBf16, 1, 0, 2, 4, 4 / kReplicas}, Case{DType::kF32, 0, 0, 4, 4, 0}}) {
    const Rank rank(0, 1, {.zero_stage = c.zero_stage, .dp_rank = 1, .moments = c.moments}, 4,
                    c.dtype);
    const auto n = static_cast<double>(rank.layout->num_elements());
    const memory::BytesByKind bytes = rank.memory->Report();
    const auto of = [&](memory::Kind kind) {
      return static_cast<double>(bytes[static_cast<size_t>(kind)]);
    };
    EXPECT_EQ(of(memory::Kind::kWeights), c.weights * n);
    EXPECT_EQ(of(memory::Kind::kGradients), c.gradients * n);
    EXPECT_EQ(of(memory::Kind::kOptimizer), c.optimizer * n)
        << kernels::Name(c.dtype) << " zero " << c.zero_stage << " moments " << c.moments;
  }
}

TEST(StateDeathTest, AnotherReplicasStateIsABug) {
  const Rank rank(0, 1, {.zero_stage = 1, .dp_rank = 0}, 2, DType::kBf16);
  EXPECT_DEATH(rank.store->StateOf(0, rank.layout->OwnSlice(0, 1)), "not this replica's");
}

}  // namespace
}  // namespace mt::params
