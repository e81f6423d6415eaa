// The update rules over the flat buffers: which parameters decay, updates against the formulas, and
// that a skipped step writes nothing.
#include "worker/optim/optimizer.h"

#include <cmath>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"

namespace mt::optim {
namespace {

using params::DecaysByMegatronRule;
using params::ParamId;
using params::Region;

// The kinds of parameters that a GPT has, with memory.
class OptimizerTest : public ::testing::Test {
 protected:
  void Build(int64_t dp_size, const OptimizerConfig& config = {}) {
    const auto add = [&](const std::string& name, kernels::Shape shape, Region region) {
      registry_.Add({.name = name,
                     .shape = shape,
                     .stored = shape,
                     .region = region,
                     .decay = DecaysByMegatronRule(name, shape)});
    };
    add("embedding.word.weight", {16, 8}, Region::kWordEmbedding);
    add("embedding.position.weight", {4, 8}, Region::kPositionTable);
    add("layers.0.ffn.up.weight", {32, 8}, Region::kMatrix);
    add("layers.0.ffn.up.bias", {32}, Region::kShardedVector);
    add("final_norm.weight", {8}, Region::kReplicatedVector);
    add("final_norm.bias", {8}, Region::kReplicatedVector);
    layout_.emplace(params::FlatLayout::Args{
        .registry = &registry_, .dp_size = dp_size, .min_bucket_elements = 64});
    store_.emplace(&registry_, &*layout_, kernels::DType::kF64,
                   params::StateShare{.moments = config.moments()});
    memory::MemoryPlan plan;
    store_->Plan(&plan);
    memory_ = memory::Memory::Allocate(backend_->device(), plan, int64_t{1} << 30).value();
    store_->Bind(*memory_);
    optimizer_.emplace(&backend_->update(), &*store_, config);
  }
  double* Weight(const char* name) {
    return store_->Weight(registry_.Find(name).value()).Data<double>();
  }
  double* Grad(const char* name) {
    return store_->Grad(registry_.Find(name).value()).Data<double>();
  }

  std::unique_ptr<kernels::Backend> backend_ = kernels::cpu::MakeCpuBackend({}).value();
  std::unique_ptr<kernels::Stream> stream_ =
      backend_->device().CreateStream(kernels::StreamPriority::kLow);
  params::Registry registry_;
  std::optional<params::FlatLayout> layout_;
  std::optional<params::ParamStore> store_;
  std::unique_ptr<memory::Memory> memory_;
  std::optional<Optimizer> optimizer_;
};

TEST_F(OptimizerTest, WeightDecayByMegatronsRule) {
  Build(1);
  for (const params::ParamSpec& spec : registry_.params()) Weight(spec.name.c_str())[0] = 2.0;
  kernels::StepScalars scalars;
  scalars.lr = 0.1;
  scalars.weight_decay = 0.01;
  scalars.bias_correction1 = 0.1;
  scalars.bias_correction2 = 0.001;
  optimizer_->Update(*stream_, &scalars);  // with gradients of zero, only decay acts
  const double decayed = 2.0 - 0.1 * (0.01 * 2.0);
  EXPECT_DOUBLE_EQ(Weight("embedding.word.weight")[0], decayed);
  EXPECT_DOUBLE_EQ(Weight("embedding.position.weight")[0], decayed);
  EXPECT_DOUBLE_EQ(Weight("layers.0.ffn.up.weight")[0], decayed);
  EXPECT_EQ(Weight("layers.0.ffn.up.bias")[0], 2.0);
  EXPECT_EQ(Weight("final_norm.weight")[0], 2.0);
  EXPECT_EQ(Weight("final_norm.bias")[0], 2.0);
}

TEST_F(OptimizerTest, TwoStepsOfAdamWAgainstTheFormula) {
  Build(1);
  double p = 1.5;
  double m = 0;
  double v = 0;
  Weight("layers.0.ffn.up.weight")[7] = p;
  for (int t = 1; t <= 2; ++t) {
    const double gradient = t == 1 ? 0.3 : -0.8;
    Grad("layers.0.ffn.up.weight")[7] = gradient;
    kernels::StepScalars scalars;
    scalars.factor = 0.5;  // clip
    scalars.lr = 0.01;
    scalars.weight_decay = 0.1;
    scalars.bias_correction1 = 1 - std::pow(0.9, t);
    scalars.bias_correction2 = 1 - std::pow(0.999, t);
    optimizer_->Update(*stream_, &scalars);
    const double g = gradient * 0.5;
    m = 0.9 * m + (1 - 0.9) * g;
    v = 0.999 * v + (1 - 0.999) * g * g;
    const double step =
        m / (1 - std::pow(0.9, t)) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8) + 0.1 * p;
    p -= 0.01 * step;
    EXPECT_NEAR(Weight("layers.0.ffn.up.weight")[7], p, 1e-14) << t;
  }
  EXPECT_EQ(Weight("layers.0.ffn.up.weight")[8], 0.0) << "an untouched element stays zero";
}

TEST_F(OptimizerTest, SgdWithMomentumAgainstTheFormula) {
  Build(1, {.kind = OptimizerKind::kSgd, .momentum = 0.8});
  double p = 1.5;
  double gain = 2.0;
  double u = 0;
  Weight("layers.0.ffn.up.weight")[7] = p;
  Weight("final_norm.weight")[1] = gain;
  for (const double gradient : {0.3, -0.8, 0.1}) {
    Grad("layers.0.ffn.up.weight")[7] = gradient;
    Grad("final_norm.weight")[1] = gradient;
    kernels::StepScalars scalars;
    scalars.factor = 0.5;
    scalars.lr = 0.01;
    scalars.weight_decay = 0.1;
    optimizer_->Update(*stream_, &scalars);
    u = 0.8 * u + 0.5 * gradient;
    p -= 0.01 * (u + 0.1 * p);
    gain -= 0.01 * u;
    EXPECT_NEAR(Weight("layers.0.ffn.up.weight")[7], p, 1e-15);
    EXPECT_NEAR(Weight("final_norm.weight")[1], gain, 1e-15) << "gains have no decay";
  }
  EXPECT_FALSE(store_->StateOf(0).v) << "one moment is all that it keeps";
}

TEST_F(OptimizerTest, SgdWithoutMomentumKeepsNoState) {
  Build(1, {.kind = OptimizerKind::kSgd, .momentum = 0});
  EXPECT_EQ(memory_->Report()[static_cast<size_t>(memory::Kind::kOptimizer)], 0);
  Grad("final_norm.weight")[1] = 2;
  kernels::StepScalars scalars;
  scalars.lr = 0.25;
  optimizer_->Update(*stream_, &scalars);
  EXPECT_EQ(Weight("final_norm.weight")[1], -0.5);
}

TEST_F(OptimizerTest, SkippedStepWritesNothing) {
  Build(1);
  Weight("final_norm.weight")[0] = 1;
  Grad("final_norm.weight")[0] = 1;
  kernels::StepScalars scalars;
  scalars.lr = 1;
  scalars.skip = 1;
  optimizer_->Update(*stream_, &scalars);
  EXPECT_EQ(Weight("final_norm.weight")[0], 1.0);
  const int bucket = layout_->BucketOf(registry_.Find("final_norm.weight").value());
  EXPECT_EQ(store_->StateOf(bucket).m.Data<double>()[0], 0.0);
}

}  // namespace
}  // namespace mt::optim
