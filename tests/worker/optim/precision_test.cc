// Mixed precision over replicas, tensor ranks and stages: masters equal those of fp32 training,
// gradients of many microbatches accumulate in fp32, and an overflow on any rank is seen by all.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/worker/parallel/sync_rig.h"
#include "worker/params/init.h"
#include "worker/params/state_parts.h"

namespace mt::optim {
namespace {

using kernels::DType;
using kernels::Tensor;
using layout::MeshSizes;
using parallel::RigConstants;
using parallel::RigLayout;
using parallel::RigMesh;
using parallel::RigRank;
using params::ParamId;
using params::PartsOf;
using params::StateParts;

class MasterTest : public ::testing::TestWithParam<std::tuple<DType, OptimizerKind>> {};

TEST_P(MasterTest, EqualsTheFp32OptimizerBitForBitOver100Steps) {
  const auto [dtype, kind] = GetParam();
  const MeshSizes mesh{.tp = 2, .dp = 2};
  RigLayout layout{
      .mesh = mesh, .zero_stage = 1, .overlap = true, .dtype = dtype, .optimizer = {.kind = kind}};
  kernels::StepConstants constants = RigConstants(mesh);
  if (dtype == DType::kF16) {
    // Powers of two go in and out of every number without a trace.
    constants.loss_scale = {
        .kind = kernels::LossScaleKind::kDynamic, .initial = 65536, .window = 9};
  }
  RigMesh half(layout, constants);
  layout.dtype = DType::kF32;
  RigMesh full(layout, RigConstants(mesh));
  half.Train(100, parallel::RandomGradient, false);
  full.Train(100, parallel::RandomGradient, false);
  if (dtype == DType::kF16) {
    EXPECT_EQ(half.rank(0).scalars().loss_scale, 65536 * 0x1p11);
  }

  int64_t rounded = 0;  // masters that the model's type does not hold
  for (int r = 0; r < half.size(); ++r) {
    const params::ParamStore& store = half.rank(r).store();
    EXPECT_EQ(half.rank(r).scalars().grad_norm, full.rank(r).scalars().grad_norm);
    for (int32_t p = 0; p < static_cast<int32_t>(store.registry().size()); ++p) {
      const auto ours = StateParts(store, ParamId{p}, PartsOf::kOwnSlices);
      const auto theirs = StateParts(full.rank(r).store(), ParamId{p}, PartsOf::kOwnSlices);
      ASSERT_EQ(ours.size(), theirs.size());
      for (size_t i = 0; i < ours.size(); ++i) {
        EXPECT_EQ(std::memcmp(ours[i].master.data, theirs[i].master.data,
                              static_cast<size_t>(ours[i].master.Bytes())),
                  0)
            << store.registry()[ParamId{p}].name << " on rank " << r;
      }
    }
    // The weights are the masters rounded once, gathered from all replicas.
    const Tensor weights = store.weights();
    const std::vector<char> gathered(static_cast<const char*>(weights.data),
                                     static_cast<const char*>(weights.data) + weights.Bytes());
    params::RoundMaster(half.rank(r).stream(), half.rank(r).backend().vector(), store);
    EXPECT_EQ(std::memcmp(gathered.data(), weights.data, gathered.size()), 0) << "rank " << r;
    for (int b = 0; b < store.layout().num_buckets(); ++b) {
      const params::ParamStore::State state = store.StateOf(b);
      for (int64_t i = 0; i < state.master.NumElements(); ++i) {
        rounded += parallel::ValueAt(state.master, i) != parallel::ValueAt(state.model_copy, i);
      }
    }
  }
  EXPECT_GT(rounded, 10'000);
}

INSTANTIATE_TEST_SUITE_P(Types, MasterTest,
                         ::testing::Combine(::testing::Values(DType::kBf16, DType::kF16),
                                            ::testing::Values(OptimizerKind::kAdamW,
                                                              OptimizerKind::kSgd)),
                         [](const auto& instance) {
                           return std::string(kernels::Name(std::get<0>(instance.param))) +
                                  (std::get<1>(instance.param) == OptimizerKind::kSgd ? "_sgd"
                                                                                      : "_adamw");
                         });

TEST(OverflowTest, OneRanksOverflowIsSkippedByAllAlongTheGoldenSequence) {
  // docs/design/megatron-compat.md#loss-scale has the flags and scales; the learning rate is that
  // of the steps taken.
  const bool overflow[] = {1, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0};
  const double expected[] = {65536, 65536, 32768, 16384, 16384, 16384, 16384, 32768, 32768, 32768,
                             16384, 16384, 16384, 16384, 32768, 32768, 32768, 32768, 65536};
  const MeshSizes mesh{.tp = 2, .dp = 2, .pp = 2};
  kernels::StepConstants constants = RigConstants(mesh);
  constants.decay = kernels::DecayKind::kLinear;
  constants.warmup_samples = 40;
  constants.decay_samples = 200;
  constants.loss_scale = {
      .kind = kernels::LossScaleKind::kDynamic, .initial = 65536, .window = 4, .hysteresis = 2};
  RigMesh many({.mesh = mesh, .zero_stage = 1, .overlap = true, .dtype = DType::kF16}, constants);
  many.Run([&](RigRank& rank) {
    int64_t taken = 0;
    for (size_t step = 0; step < std::size(overflow); ++step) {
      ASSERT_TRUE(rank.sync().WaitAllWeights(rank.stream()).ok());
      const Tensor weights = rank.store().weights();
      const std::vector<char> before(static_cast<const char*>(weights.data),
                                     static_cast<const char*>(weights.data) + weights.Bytes());
      const double lr_before = rank.scalars().lr;
      // Another rank each time.
      const int me = rank.at().tp + 2 * (rank.at().dp + 2 * rank.at().pp);
      const bool mine = overflow[step] && static_cast<int>(step) % 8 == me;
      const double poison = mine ? std::numeric_limits<double>::infinity() : 0;
      ASSERT_TRUE(
          rank.Step(static_cast<int64_t>(step), parallel::RandomGradient, true, poison).ok());
      ASSERT_TRUE(rank.sync().WaitAllWeights(rank.stream()).ok());
      const bool moved = std::memcmp(before.data(), weights.data, before.size()) != 0;
      EXPECT_EQ(rank.scalars().loss_scale, expected[step]) << "step " << step;
      EXPECT_EQ(rank.scalars().skip, overflow[step] ? 1 : 0) << "step " << step;
      EXPECT_EQ(rank.scalars().consumed_samples, 8 * static_cast<int64_t>(step + 1));
      if (overflow[step]) {
        EXPECT_FALSE(moved) << "step " << step;
        EXPECT_EQ(rank.scalars().lr, lr_before) << "step " << step;
      } else {
        EXPECT_TRUE(moved || taken == 0) << "step " << step;  // the first runs at a rate of 0
        EXPECT_EQ(rank.scalars().lr, kernels::LearningRate(constants, 8 * taken));
        ++taken;
      }
    }
    EXPECT_EQ(rank.scalars().skipped_steps, 5);
  });
}

// The gradients of a linear layer by microbatch, whose inputs are made up from its number.
class LinearGradients {
 public:
  explicit LinearGradients(DType dtype) : x_(Make(dtype, {96, 48})), dy_(Make(dtype, {96, 40})) {}

  Tensor Make(DType dtype, kernels::Shape shape) {
    const int64_t bytes = shape.NumElements() * kernels::SizeOf(dtype);
    buffers_.push_back(backend_->device().Allocate(bytes, kernels::MemoryKind::kDevice));
    return {buffers_.back()->data(), dtype, shape};
  }
  void Write(uint64_t microbatch, kernels::GradMode mode, const Tensor& dw, const Tensor& dbias) {
    Fill(x_, 2 * microbatch);
    Fill(dy_, 2 * microbatch + 1);
    kernels::LinearWeightGradArgs args{.dy = dy_, .x = x_, .mode = mode, .dw = dw, .dbias = dbias};
    const Tensor workspace =
        Make(DType::kU8, {std::max<int64_t>(backend_->linear().Plan(args), 1)});
    args.workspace = {workspace.data, workspace.Bytes()};
    backend_->linear().WeightGrad(*stream_, args);
  }

 private:
  void Fill(const Tensor& t, uint64_t key) {
    backend_->random().FillNormal(*stream_,
                                  {.key = key, .std = 1.0, .out = t.Reshaped({t.NumElements()})});
  }

  std::unique_ptr<kernels::Backend> backend_ = kernels::cpu::MakeCpuBackend({}).value();
  std::unique_ptr<kernels::Stream> stream_ =
      backend_->device().CreateStream(kernels::StreamPriority::kLow);
  std::vector<std::unique_ptr<kernels::DeviceBuffer>> buffers_;
  Tensor x_, dy_;
};

void AddTo(std::vector<double>* sum, const Tensor& more) {
  sum->resize(static_cast<size_t>(more.NumElements()));
  for (size_t i = 0; i < sum->size(); ++i) (*sum)[i] += static_cast<double>(more.Data<float>()[i]);
}

// ||actual - expected|| / ||expected||
double Difference(const Tensor& actual, const std::vector<double>& expected) {
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(static_cast<double>(actual.Data<float>()[i]) - expected[i], 2);
    size += expected[i] * expected[i];
  }
  return std::sqrt(difference / size);
}

TEST(AccumulationTest, SixtyFourMicrobatchesAreTheirFp64Sum) {
  using kernels::GradMode;
  for (const DType dtype : {DType::kBf16, DType::kF16, DType::kF32}) {
    LinearGradients gradients(dtype);
    const Tensor sum = gradients.Make(DType::kF32, {40, 48});
    const Tensor bias_sum = gradients.Make(DType::kF32, {40});
    const Tensor one = gradients.Make(DType::kF32, {40, 48});
    const Tensor bias_one = gradients.Make(DType::kF32, {40});
    std::vector<double> expected;
    std::vector<double> expected_bias;
    for (uint64_t i = 0; i < 64; ++i) {
      gradients.Write(i, i == 0 ? GradMode::kOverwrite : GradMode::kAdd, sum, bias_sum);
      gradients.Write(i, GradMode::kOverwrite, one, bias_one);
      AddTo(&expected, one);
      AddTo(&expected_bias, bias_one);
    }
    EXPECT_LE(Difference(sum, expected), 1e-6) << kernels::Name(dtype);
    EXPECT_LE(Difference(bias_sum, expected_bias), 1e-6) << kernels::Name(dtype);
    EXPECT_GT(Difference(one, expected), 0.5) << "the last one alone is not their sum";
  }
}

}  // namespace
}  // namespace mt::optim
