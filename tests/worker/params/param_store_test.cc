// Views of the flat buffers, initial values by kind, and the bucket countdown.
#include "worker/params/param_store.h"

#include <cmath>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "worker/params/bucket_countdown.h"
#include "worker/params/init.h"

namespace mt::params {
namespace {

using kernels::DType;

Registry MakeRegistry() {
  Registry registry;
  const auto add = [&](const std::string& name, kernels::Shape shape, Region region, InitKind init,
                       bool joined) {
    registry.Add({.name = name,
                  .shape = shape,
                  .stored = shape,
                  .region = region,
                  .init = init,
                  .std = 0.02,
                  .decay = DecaysByMegatronRule(name, shape),
                  .layer = region == Region::kWordEmbedding ? -1 : 0,
                  .joined = joined});
  };
  registry.Add({.name = "embedding.word.weight",
                .shape = {257, 16},
                .stored = {384, 16},
                .region = Region::kWordEmbedding,
                .init = InitKind::kNormal,
                .std = 0.02,
                .decay = true});
  add("layers.0.norm1.weight", {16}, Region::kReplicatedVector, InitKind::kOne, false);
  add("layers.0.attention.q.weight", {16, 16}, Region::kMatrix, InitKind::kNormal, false);
  add("layers.0.attention.k.weight", {16, 16}, Region::kMatrix, InitKind::kNormal, true);
  add("layers.0.attention.v.weight", {16, 16}, Region::kMatrix, InitKind::kNormal, true);
  add("layers.0.attention.q.bias", {16}, Region::kShardedVector, InitKind::kZero, false);
  return registry;
}

// A store with its memory, initialised.
struct Model {
  Model(int64_t dp_size, DType dtype, int64_t seed)
      : registry(MakeRegistry()),
        layout({.registry = &registry, .dp_size = dp_size, .min_bucket_elements = 512}),
        store(&registry, &layout, dtype),
        backend(kernels::cpu::MakeCpuBackend({}).value()) {
    memory::MemoryPlan plan;
    store.Plan(&plan);
    memory = memory::Memory::Allocate(backend->device(), plan, int64_t{1} << 30).value();
    store.Bind(*memory);
    const auto stream = backend->device().CreateStream(kernels::StreamPriority::kLow);
    InitializeParams(
        *stream, {.random = &backend->random(), .vector = &backend->vector(), .seed = seed}, store);
  }
  ParamId Id(std::string_view name) const { return registry.Find(name).value(); }

  Registry registry;
  FlatLayout layout;
  ParamStore store;
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<memory::Memory> memory;
};

TEST(ParamStoreTest, JoinedParametersAreOneTensor) {
  const Model model(2, DType::kF32, 1);
  const ParamId q = model.Id("layers.0.attention.q.weight");
  const ParamId v = model.Id("layers.0.attention.v.weight");
  const kernels::Tensor qkv = model.store.WeightSpan(q, v);
  EXPECT_EQ(qkv.shape, (kernels::Shape{48, 16}));
  EXPECT_EQ(qkv.data, model.store.Weight(q).data);
  EXPECT_EQ(qkv.Rows(32, 16).data, model.store.Weight(v).data);
  EXPECT_EQ(model.store.GradSpan(q, v).Rows(32, 16).data, model.store.Grad(v).data);
}

TEST(ParamStoreTest, FullPrecisionWeightsAreTheMaster) {
  const Model model(1, DType::kF64, 1);
  EXPECT_FALSE(model.store.has_model_copy());
  const ParamId q = model.Id("layers.0.attention.q.weight");
  EXPECT_EQ(model.store.StateOf(model.layout.BucketOf(q)).master.data, model.store.Weight(q).data);
  EXPECT_EQ(model.store.grads().dtype, DType::kF64);
  const int64_t n = model.layout.num_elements() * 8;
  const memory::BytesByKind bytes = model.memory->Report();
  EXPECT_EQ(bytes[static_cast<size_t>(memory::Kind::kWeights)], n);
  EXPECT_EQ(bytes[static_cast<size_t>(memory::Kind::kGradients)], n);
  EXPECT_EQ(bytes[static_cast<size_t>(memory::Kind::kOptimizer)], 2 * n);
}

TEST(InitTest, ValuesByKindAndPaddedRowsZero) {
  const Model model(1, DType::kF64, 7);
  const kernels::Tensor table = model.store.Weight(model.Id("embedding.word.weight"));
  double sum = 0;
  double squares = 0;
  const int64_t real = 257 * 16;
  for (int64_t i = 0; i < real; ++i) {
    sum += table.Data<double>()[i];
    squares += table.Data<double>()[i] * table.Data<double>()[i];
  }
  const double n = static_cast<double>(real);
  // Five standard errors of mean and of variance.
  EXPECT_LT(std::abs(sum / n), 5 * 0.02 / std::sqrt(n));
  EXPECT_LT(std::abs(squares / n / (0.02 * 0.02) - 1), 5 * std::sqrt(2 / n));
  for (int64_t i = real; i < table.NumElements(); ++i) ASSERT_EQ(table.Data<double>()[i], 0.0);
  const kernels::Tensor gain = model.store.Weight(model.Id("layers.0.norm1.weight"));
  for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(gain.Data<double>()[i], 1.0);
  // Two parameters of one shape, and two seeds, have different values.
  const auto first = [](const Model& m, std::string_view name) {
    return m.store.Weight(m.Id(name)).Data<double>()[0];
  };
  EXPECT_NE(first(model, "layers.0.attention.q.weight"),
            first(model, "layers.0.attention.k.weight"));
  EXPECT_NE(first(model, "layers.0.attention.q.weight"),
            first(Model(1, DType::kF64, 8), "layers.0.attention.q.weight"));
}

TEST(InitTest, SinglePrecisionIsTheRoundedDouble) {
  const Model wide(1, DType::kF64, 1234);
  const Model narrow(1, DType::kF32, 1234);
  const ParamId q = wide.Id("layers.0.attention.q.weight");
  for (int64_t i = 0; i < 256; ++i) {
    ASSERT_EQ(static_cast<float>(wide.store.Weight(q).Data<double>()[i]),
              narrow.store.Weight(q).Data<float>()[i]);
  }
}

TEST(BucketCountdownTest, ReportsABucketWithItsLastParameter) {
  const Model model(1, DType::kF32, 1);
  BucketCountdown countdown(&model.layout);
  for (int round = 0; round < 2; ++round) {
    countdown.Reset();
    const ParamId q = model.Id("layers.0.attention.q.weight");
    EXPECT_EQ(countdown.MarkDone(model.Id("layers.0.attention.v.weight")), std::nullopt);
    EXPECT_EQ(countdown.MarkDone(q), std::nullopt);
    EXPECT_EQ(countdown.MarkDone(model.Id("layers.0.attention.k.weight")),
              model.layout.BucketOf(q));
    EXPECT_FALSE(countdown.AllDone());
    for (const char* name :
         {"embedding.word.weight", "layers.0.norm1.weight", "layers.0.attention.q.bias"}) {
      EXPECT_EQ(countdown.MarkDone(model.Id(name)), model.layout.BucketOf(model.Id(name)));
    }
    EXPECT_TRUE(countdown.AllDone());
  }
  EXPECT_DEATH(countdown.MarkDone(model.Id("embedding.word.weight")), "done twice");
}

TEST(BucketCountdownTest, WatchesTheBucketsOfOneChunk) {
  Registry registry;
  for (const int chunk : {0, 1, 1}) {
    registry.Add({.name = "w" + std::to_string(registry.size()),
                  .shape = {8, 8},
                  .stored = {8, 8},
                  .chunk = chunk});
  }
  const FlatLayout layout({.registry = &registry, .dp_size = 1, .min_bucket_elements = 1 << 20});
  BucketCountdown countdown(&layout, 1);
  EXPECT_EQ(countdown.MarkDone(ParamId{2}), std::nullopt);
  EXPECT_EQ(countdown.MarkDone(ParamId{1}), 1);
  EXPECT_TRUE(countdown.AllDone());
  EXPECT_DEATH(countdown.MarkDone(ParamId{0}), "parameter 0");
  EXPECT_TRUE(BucketCountdown(&layout, 2).AllDone()) << "a chunk without parameters";
}

}  // namespace
}  // namespace mt::params
