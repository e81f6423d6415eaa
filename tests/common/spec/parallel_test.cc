// Parallelism: the derived layout, and each refusal with its numbers and the nearest sizes that
// fit.
#include <gtest/gtest.h>

#include "common/spec/validate.h"
#include "tests/common/spec/job_text.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;

TEST(Layout, IsDerived) {
  const Loaded one = Load();
  ASSERT_EQ(FormatFaults(one.faults), "");
  EXPECT_FALSE(one.job.parallel().sequence_parallel());
  EXPECT_EQ(one.job.parallel().schedule(), v1::Parallel::SCHEDULE_1F1B);
  EXPECT_FALSE(one.job.parallel().has_microbatch_group());
  EXPECT_EQ(one.job.parallel().zero_stage(), 0);
  EXPECT_TRUE(one.job.parallel().overlap().grad_reduce());
  EXPECT_TRUE(one.job.parallel().overlap().param_gather());
  EXPECT_TRUE(one.job.parallel().overlap().pipeline());
  EXPECT_FALSE(one.job.parallel().overlap().has_tensor());

  const Loaded both = Load({"parallel={tensor: 2, pipeline: 2, virtual_stages: 2}",
                            "model.layers=4", "placement.slots=8"});
  ASSERT_EQ(FormatFaults(both.faults), "");
  EXPECT_EQ(both.job.parallel().data(), 2);
  EXPECT_TRUE(both.job.parallel().sequence_parallel());
  EXPECT_EQ(both.job.parallel().schedule(), v1::Parallel::SCHEDULE_INTERLEAVED);
  EXPECT_EQ(both.job.parallel().microbatch_group(), 2);
  EXPECT_EQ(both.job.placement().slots(), 8);
}

TEST(Layout, ZeroStageFollowsTheDevice) {
  Loaded auto_device = Load({});
  ASSERT_EQ(FormatFaults(auto_device.faults), "");
  EXPECT_FALSE(auto_device.job.parallel().has_zero_stage());
  EXPECT_EQ(FormatFaults(ResolveForSlots({.gpu = true}, &auto_device.job)), "");
  EXPECT_EQ(auto_device.job.parallel().zero_stage(), 1);
  EXPECT_EQ(Load({"placement.device=gpu"}).job.parallel().zero_stage(), 1);
  EXPECT_EQ(Load({"placement.device=gpu", "parallel.data=1"}).job.parallel().zero_stage(), 0);
  EXPECT_EQ(Load({"placement.device=gpu", "parallel.zero_stage=0"}).job.parallel().zero_stage(), 0);
  EXPECT_EQ(Load({"parallel.zero_stage=1"}).job.parallel().zero_stage(), 1);
}

TEST(Layout, GroupsOfHostMemoryHaveAtMost64Ranks) {
  const std::string of_data =
      "parallel.data: on CPU slots at most 64 ranks share what one group exchanges, and it is 65; "
      "use fewer, or device gpu";
  EXPECT_EQ(
      FaultsOf({"placement.device=cpu", "parallel={data: 64}", "training.global_batch_size=256"}),
      "");
  EXPECT_EQ(
      FaultsOf({"placement.device=cpu", "parallel={data: 65}", "training.global_batch_size=260"}),
      of_data);
  EXPECT_EQ(FaultsOf({"placement.device=cpu", "parallel={tensor: 65}", "model.heads=65",
                      "model.kv_heads=65", "model.hidden_size=1040", "model.ffn_size=260",
                      "model.seq_length=65"}),
            "parallel.tensor: on CPU slots at most 64 ranks share what one group exchanges, and it "
            "is 65; use fewer, or device gpu");
  // A job of either device hears of it where its slots are known.
  Loaded job = Load({"parallel={data: 65}", "training.global_batch_size=260"});
  ASSERT_EQ(FormatFaults(job.faults), "");
  v1::JobSpec on_gpus = job.job;
  EXPECT_EQ(FormatFaults(ResolveForSlots({.gpu = true}, &on_gpus)), "");
  EXPECT_EQ(FormatFaults(ResolveForSlots({.gpu = false}, &job.job)), of_data);
}

TEST(Layout, CallsOfAtMost64RanksAreCompared) {
  const std::vector<std::string> on_gpus = {"placement.device=gpu",
                                            "training.debug_collectives=true"};
  std::vector<std::string> job = on_gpus;
  job.insert(job.end(), {"parallel={data: 64}", "training.global_batch_size=256"});
  EXPECT_EQ(FaultsOf(job), "");
  job = on_gpus;
  job.insert(job.end(), {"parallel={data: 65}", "training.global_batch_size=260"});
  EXPECT_EQ(FaultsOf(job),
            "training.debug_collectives: compares the calls of at most 64 ranks, and the job has "
            "65; leave it out, or try the layout with fewer replicas");
}

TEST(Tensor, CutsHeadsFfnAndSequence) {
  EXPECT_EQ(FaultsOf({"parallel={tensor: 3}", "training.global_batch_size=4"}),
            "model.heads: 4 is not a multiple of parallel.tensor 3; nearest: 3 or 6, or tensor 2 "
            "or 4\n"
            "model.kv_heads: 4 is not a multiple of parallel.tensor 3; nearest: 3 or 6, or tensor "
            "2 or 4\n"
            "model.ffn_size: 256 is not a multiple of parallel.tensor 3; nearest: 255 or 258, or "
            "tensor 2 or 4\n"
            "model.seq_length: 32 is not a multiple of parallel.tensor 3; nearest: 30 or 33, or "
            "tensor 2 or 4");
  EXPECT_EQ(FaultsOf({"parallel={tensor: 4}", "model.kv_heads=2", "training.global_batch_size=4"}),
            "model.kv_heads: 2 is not a multiple of parallel.tensor 4; nearest: 4, or tensor 2");
  // Without sequence parallelism every rank holds the whole sequence.
  EXPECT_EQ(FaultsOf({"parallel={tensor: 4, sequence_parallel: true}", "model.seq_length=34"}),
            "model.seq_length: 34 is not a multiple of parallel.tensor 4; nearest: 32 or 36, or "
            "tensor 2");
  EXPECT_EQ(FaultsOf({"parallel={tensor: 4, sequence_parallel: false}", "model.seq_length=34"}),
            "");
}

TEST(Tensor, SequenceParallelNeedsIt) {
  EXPECT_EQ(FaultsOf({"parallel.sequence_parallel=true"}),
            "parallel.sequence_parallel: needs ranks that share the sequence, but parallel.tensor "
            "is 1; use auto or tensor 2 or more");
}

TEST(Pipeline, LayersSpreadEvenlyOrByALayout) {
  EXPECT_EQ(FaultsOf({"parallel={pipeline: 4}"}),
            "model.layers: 2 is not a multiple of parallel.pipeline 4 x virtual_stages 1 = 4; "
            "nearest: 4, pipeline 2, or give parallel.layout");
  EXPECT_EQ(FaultsOf({"parallel={pipeline: 2, virtual_stages: 2}", "model.layers=6"}),
            "model.layers: 6 is not a multiple of parallel.pipeline 2 x virtual_stages 2 = 4; "
            "nearest: 4 or 8, pipeline 1 or 3, or give parallel.layout");
  EXPECT_EQ(FaultsOf({"parallel={pipeline: 2, layout: [2, 3]}", "model.layers=5"}), "");
  EXPECT_EQ(FaultsOf({"parallel={pipeline: 2, layout: \"Ett|tttL\"}", "model.layers=5"}), "");
  EXPECT_EQ(FaultsOf({"parallel={pipeline: 2, layout: \"2,3\"}", "model.layers=6"}),
            "parallel.layout: the layout places 5 layers, but the model has 6");
  EXPECT_EQ(
      FaultsOf({"parallel={pipeline: 2, virtual_stages: 2, layout: \"2,3\"}", "model.layers=5"}),
      "parallel.layout: the layout has 2 positions, but pipeline 2 x virtual_stages 2 = 4");
  EXPECT_EQ(FaultsOf({"parallel={pipeline: 2, layout: \"Ett|x\"}"}),
            "parallel.layout: layout 'Ett|x': expected E, t, L, |, ( or a comma at character 5");
}

TEST(Pipeline, InterleavingNeedsStagesAndChunks) {
  EXPECT_EQ(FaultsOf({"parallel={virtual_stages: 2}"}),
            "parallel.virtual_stages: interleaving 2 chunks needs 2 or more stages, but "
            "parallel.pipeline is 1; use virtual_stages 1 or pipeline 2");
  EXPECT_EQ(FaultsOf({"parallel={pipeline: 2, schedule: interleaved}"}),
            "parallel.schedule: interleaved needs 2 or more chunks per stage, but "
            "parallel.virtual_stages is 1; use 1f1b or virtual_stages 2");
  for (const char* schedule : {"1f1b", "gpipe"}) {
    EXPECT_EQ(FaultsOf({"parallel={pipeline: 2, virtual_stages: 2}", "model.layers=4",
                        fmt::format("parallel.schedule={}", schedule)}),
              fmt::format("parallel.virtual_stages: 2 chunks per stage need schedule interleaved, "
                          "but it is {}; use virtual_stages 1 or schedule auto",
                          schedule));
  }
  EXPECT_EQ(FaultsOf({"parallel={pipeline: 2, microbatch_group: 2}"}),
            "parallel.microbatch_group: is for schedule interleaved, but it is 1f1b; leave it to "
            "auto");
  EXPECT_EQ(FaultsOf({"parallel={pipeline: 4, virtual_stages: 2, microbatch_group: 3}",
                      "model.layers=8"}),
            "parallel.microbatch_group: 3 is less than parallel.pipeline 4: the first stage would "
            "wait for its own output; nearest: 4");
}

TEST(Pipeline, MicrobatchesComeInGroups) {
  EXPECT_EQ(FaultsOf({"parallel={pipeline: 2, virtual_stages: 2}", "model.layers=4",
                      "training.global_batch_size=12"}),
            "training.global_batch_size: 12 makes 3 microbatches, not a multiple of the "
            "interleaved group 2; nearest: 8 or 16");
  EXPECT_EQ(FaultsOf({"parallel={pipeline: 2, virtual_stages: 2, microbatch_group: 3}",
                      "model.layers=4"}),
            "training.global_batch_size: 16 makes 4 microbatches, not a multiple of the "
            "interleaved group 3; nearest: 12 or 24");
  EXPECT_EQ(FaultsOf({"parallel={pipeline: 2, virtual_stages: 2, microbatch_group: 4}",
                      "model.layers=4"}),
            "");
}

TEST(Ramp, EverySizeIsWholeMicrobatchesAndGroups) {
  const std::string none = "training.global_batch_size=";
  const Loaded words = Load({none, "training.batch_ramp=\"0:8 640:16 2560:32\""});
  ASSERT_EQ(FormatFaults(words.faults), "");
  EXPECT_EQ(words.job.training().global_batch_size(), 32);
  EXPECT_EQ(FaultsOf({"training.batch_ramp=8,8,300"}), "");
  EXPECT_EQ(FaultsOf({none, "training.batch_ramp=\"0:8 640:12 2560:32\""}),
            "training.batch_ramp: size 12 is not micro_batch_size 4 x parallel.data 2 = 8 times a "
            "whole number of microbatches; nearest: 8 or 16");
  EXPECT_EQ(FaultsOf({none, "training.batch_ramp=\"0:8 640:16\"", "model.layers=4",
                      "parallel={pipeline: 2, virtual_stages: 2, data: 2}"}),
            "training.batch_ramp: size 8 makes 1 microbatches, not a multiple of the interleaved "
            "group 2; nearest: 16");
  EXPECT_EQ(FaultsOf({"training.batch_ramp=\"0:8 640:32\""}),
            "training.batch_ramp: the last size is 32, but training.global_batch_size is 16; leave "
            "it out or make them equal");
  EXPECT_EQ(FaultsOf({"training.batch_ramp=8,7,300"}),
            "training.batch_ramp: increments of 7 do not lead from 8 to global_batch_size 16; they "
            "must be a whole number of steps up");
  EXPECT_EQ(FaultsOf({none, "training.batch_ramp=8,8,300"}),
            "training.batch_ramp: start,increment,samples needs training.global_batch_size, the "
            "size after the ramp");
}

TEST(Recompute, MethodAndLayersAreForFull) {
  const Loaded full = Load({"training.recompute.mode=full"});
  ASSERT_EQ(FormatFaults(full.faults), "");
  EXPECT_EQ(full.job.training().recompute().method(), v1::Training::Recompute::METHOD_UNIFORM);
  EXPECT_EQ(full.job.training().recompute().layers(), 1);
  EXPECT_EQ(FaultsOf({"training.recompute={mode: selective, method: block, layers: 2}"}),
            "training.recompute.method: is for mode full; set the mode or leave it to auto\n"
            "training.recompute.layers: is for mode full; set the mode or leave it to auto");
  EXPECT_EQ(FaultsOf({"training.recompute={mode: full, layers: 3}", "model.layers=8",
                      "parallel={pipeline: 2, virtual_stages: 2}"}),
            "training.recompute.layers: 3 is more than the 2 layers of a chunk (8 layers, pipeline "
            "2 x virtual_stages 2); at most 2");
}

TEST(Faults, ComeTogether) {
  EXPECT_EQ(
      FaultsOf({"parallel={tensor: 3, pipeline: 3, virtual_stages: 2, zero_stage: 3}",
                "model.layers=8", "training.global_batch_size=8", "training.micro_batch_size=3",
                "training.loss_scale.value=2", "optimizer.weight_decay_end=1"}),
      "parallel.zero_stage: 3 is not supported yet; supported: 0, 1\n"
      "model.heads: 4 is not a multiple of parallel.tensor 3; nearest: 3 or 6, or tensor 2 or 4\n"
      "model.kv_heads: 4 is not a multiple of parallel.tensor 3; nearest: 3 or 6, or tensor 2 or "
      "4\n"
      "model.ffn_size: 256 is not a multiple of parallel.tensor 3; nearest: 255 or 258, or tensor "
      "2 or 4\n"
      "model.seq_length: 32 is not a multiple of parallel.tensor 3; nearest: 30 or 33, or tensor 2 "
      "or 4\n"
      "model.layers: 8 is not a multiple of parallel.pipeline 3 x virtual_stages 2 = 6; nearest: 6 "
      "or 12, pipeline 2 or 4, or give parallel.layout\n"
      "training.loss_scale.value: is for training.precision fp16 only\n"
      "training.global_batch_size: 8 is not micro_batch_size 3 x parallel.data 1 = 3 times a whole "
      "number of microbatches; nearest: 6 or 9\n"
      "optimizer.weight_decay_end: 1 differs from weight_decay 0.01, but weight_decay_style is "
      "constant; use linear or cosine, or leave the end to auto");
}

}  // namespace
}  // namespace mt::spec
