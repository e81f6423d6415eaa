// Model variants, precision, learning-rate schedules: derived values and refusals.
#include <gtest/gtest.h>

#include "common/spec/validate.h"
#include "tests/common/spec/job_text.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;

TEST(Rope, PairsAndScaling) {
  EXPECT_EQ(FaultsOf({"model.position=rope", "model.head_dim=15"}),
            "model.head_dim: 15 is odd, but position rope turns pairs of channels; nearest: 14 or "
            "16");
  EXPECT_EQ(FaultsOf({"model.head_dim=15"}), "");
  EXPECT_EQ(FaultsOf({"model.position=rope", "model.rope.percent=0.1"}),
            "model.rope.percent: 0.1 of head_dim 16 is less than one pair of channels; at least "
            "0.125");
  EXPECT_EQ(FaultsOf({"model.rope={base: 500000, percent: 0.5}"}),
            "model.rope.base: 500000 is for model.position rope only\n"
            "model.rope.percent: 0.5 is for model.position rope only");
  EXPECT_EQ(FaultsOf({"model.rope={scaling: {type: linear, factor: 2}}"}),
            "model.rope.scaling.type: is for model.position rope only");
  EXPECT_EQ(FaultsOf({"model={position: rope, rope: {scaling: {type: linear}}, layers: 2, "
                      "hidden_size: 64, heads: 4, seq_length: 32}"}),
            "model.rope.scaling.factor: required: how many times longer positions become, such as "
            "8");
  EXPECT_EQ(FaultsOf({"model.position=rope", "model.rope.scaling.factor=8"}),
            "model.rope.scaling.factor: is for type linear or llama3, but type is none");
  EXPECT_EQ(FaultsOf({"model.position=rope", "model.rope.scaling.type=linear",
                      "model.rope.scaling.factor=8", "model.rope.scaling.original_positions=64"}),
            "model.rope.scaling.original_positions: is for type llama3");
  const Loaded llama = Load(
      {"model.position=rope", "model.rope.scaling.type=llama3", "model.rope.scaling.factor=8"});
  ASSERT_EQ(FormatFaults(llama.faults), "");
  const v1::Model::Rope::Scaling& scaling = llama.job.model().rope().scaling();
  EXPECT_EQ(scaling.low_freq_factor(), 1);
  EXPECT_EQ(scaling.high_freq_factor(), 4);
  EXPECT_EQ(scaling.original_positions(), 8192);
  EXPECT_EQ(FaultsOf({"model.position=rope", "model.rope.scaling.type=llama3",
                      "model.rope.scaling.factor=8", "model.rope.scaling.low_freq_factor=4"}),
            "model.rope.scaling.low_freq_factor: 4 must be below high_freq_factor 4");
}

TEST(Window, LiesWithinThePositions) {
  EXPECT_EQ(FaultsOf({"model.window=32"}), "");
  EXPECT_EQ(FaultsOf({"model.window=33"}),
            "model.window: 33 is more than max_positions 32: every token would see the whole "
            "sequence; at most 32, or none");
}

TEST(Variants, AreAccepted) {
  for (const char* position : {"learned", "rope", "alibi", "none"}) {
    for (const char* activation : {"gelu", "swiglu", "geglu", "relu2", "gelu_erf"}) {
      EXPECT_EQ(FaultsOf({fmt::format("model.position={}", position),
                          fmt::format("model.activation={}", activation), "model.norm=rmsnorm",
                          "model.bias=false", "model.qk_norm=true", "model.tie_embeddings=false",
                          "model.parallel_residual=true", "model.norm_one_plus=true",
                          "model.kv_heads=2", "model.head_dim=12", "optimizer.type=sgd"}),
                "");
    }
  }
}

TEST(LossScale, IsForFp16) {
  const Loaded dynamic = Load({"training.precision=fp16"});
  ASSERT_EQ(FormatFaults(dynamic.faults), "");
  EXPECT_EQ(dynamic.job.training().loss_scale().mode(), v1::Training::LossScale::MODE_DYNAMIC);
  EXPECT_EQ(dynamic.job.training().loss_scale().initial(), 4294967296.0);
  const Loaded fixed = Load({"training.precision=fp16", "training.loss_scale.value=1024"});
  ASSERT_EQ(FormatFaults(fixed.faults), "");
  EXPECT_EQ(fixed.job.training().loss_scale().mode(), v1::Training::LossScale::MODE_STATIC);
  EXPECT_EQ(FaultsOf({"training.precision=fp16", "training.loss_scale.mode=static"}),
            "training.loss_scale.value: required for mode static, such as 65536");
  EXPECT_EQ(FaultsOf({"training.precision=fp16", "training.loss_scale={mode: dynamic, value: 8}"}),
            "training.loss_scale.value: is for mode static; set the mode or drop the value");
  EXPECT_EQ(FaultsOf({"training.precision=fp16", "training.loss_scale={value: 8, window: 10}"}),
            "training.loss_scale.window: 10 is for mode dynamic only");
  EXPECT_EQ(FaultsOf({"training.precision=fp16", "training.loss_scale={initial: 4, min: 8}"}),
            "training.loss_scale.initial: 4 is below min 8");
  EXPECT_EQ(FaultsOf({"training.precision=bf16",
                      "training.loss_scale={mode: static, value: 8, hysteresis: 3}"}),
            "training.loss_scale.mode: is for training.precision fp16 only\n"
            "training.loss_scale.value: is for training.precision fp16 only\n"
            "training.loss_scale.hysteresis: 3 is for training.precision fp16 only");
}

TEST(LearningRate, LengthsFitTheDecay) {
  EXPECT_EQ(FaultsOf({"optimizer.warmup=100"}),
            "optimizer.warmup: 100 (1600 samples) must end before decay_over 100% (1600 samples)");
  EXPECT_EQ(FaultsOf({"optimizer.warmup=100", "optimizer.decay=constant"}), "");
  EXPECT_EQ(FaultsOf({"optimizer.decay_over=0%", "optimizer.warmup=0"}),
            "optimizer.decay_over: 0% is less than one sample");
  EXPECT_EQ(FaultsOf({"optimizer.min_lr=2e-3"}), "optimizer.min_lr: 0.002 is above lr 0.001");
  EXPECT_EQ(FaultsOf({"optimizer.warmup_init=2e-3"}),
            "optimizer.warmup_init: 0.002 is above lr 0.001");
  EXPECT_EQ(
      FaultsOf({"optimizer.warmup_init=1e-5", "optimizer.warmup=0"}),
      "optimizer.warmup_init: 1e-05 is where a warmup begins, but warmup is 0; give a warmup");
}

TEST(LearningRate, Wsd) {
  EXPECT_EQ(FaultsOf({"optimizer.decay=wsd", "optimizer.wsd.over=20"}), "");
  EXPECT_EQ(FaultsOf({"optimizer.decay=wsd"}),
            "optimizer.wsd.over: required for decay wsd: the length of the final decay, such as "
            "20%");
  EXPECT_EQ(FaultsOf({"optimizer.decay=wsd", "optimizer.wsd.over=60", "optimizer.decay_over=50"}),
            "optimizer.wsd.over: 60 (960 samples) is longer than decay_over 50 (800 samples)");
  EXPECT_EQ(FaultsOf({"optimizer.decay=wsd", "optimizer.wsd.over=95%"}),
            "optimizer.wsd.over: 95% (1520 samples) begins before warmup 10 (160 samples) ends: "
            "decay_over 100% has 1600 samples; at most 1440 samples");
  EXPECT_EQ(FaultsOf({"optimizer.decay=wsd", "optimizer.wsd.over=0%"}),
            "optimizer.wsd.over: 0% is less than one sample");
  EXPECT_EQ(FaultsOf({"optimizer.wsd.over=20%"}), "optimizer.wsd.over: is for decay wsd");
}

TEST(WeightDecay, MovesOnlyWithAStyle) {
  const Loaded same = Load({"optimizer.weight_decay=0.1"});
  EXPECT_EQ(same.job.optimizer().weight_decay_end(), 0.1);
  EXPECT_EQ(FaultsOf({"optimizer.weight_decay_end=0.1", "optimizer.weight_decay_style=cosine"}),
            "");
  EXPECT_EQ(FaultsOf({"optimizer.weight_decay_end=0.1"}),
            "optimizer.weight_decay_end: 0.1 differs from weight_decay 0.01, but "
            "weight_decay_style is constant; use linear or cosine, or leave the end to auto");
}

}  // namespace
}  // namespace mt::spec
