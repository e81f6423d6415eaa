// What a job's other fields leave without effect is said, and a rule that cannot hit is refused.
#include "common/spec/field_effects.h"

#include <gtest/gtest.h>

#include "common/spec/field_words.h"
#include "common/spec/print.h"
#include "common/spec/update.h"
#include "tests/common/spec/job_text.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;

constexpr std::string_view kTiny = R"(
name: tiny
model: {layers: 2, hidden_size: 32, heads: 2, seq_length: 32}
data: {path: [text_document], split: "8,1,1", tokenizer: {type: byte}}
training: {train_iters: 40, micro_batch_size: 4, global_batch_size: 8}
optimizer: {lr: 3.0e-3, warmup: 5}
placement: {device: cpu, threads_per_rank: 1}
)";

// What `mtctl validate` tells of kTiny with these overrides, one per line.
std::string Told(const std::vector<std::string>& overrides) {
  v1::JobSpec job;
  const Faults faults = LoadJob(kTiny, overrides, {}, &job);
  if (!faults.empty()) return "refused: " + FormatFaults(faults);
  return fmt::format("{}", fmt::join(NoteLines(FieldNotes(job)), "\n"));
}

TEST(FieldEffects, EveryFieldHasARow) {
  for (const FieldWords& field : AllFieldWords()) {
    if (field.section) continue;
    EXPECT_EQ(NumRows(field.path), field.built ? 1 : 0)
        << field.path << ": say in common/spec/field_effects.cc when it acts";
  }
}

TEST(FieldEffects, WhatOtherFieldsLeaveWithoutEffectIsSaid) {
  const std::string constant =
      " has no effect, since optimizer.decay is constant; leave it out, or choose another decay";
  EXPECT_EQ(Told({}), "");
  EXPECT_EQ(Told({"optimizer.decay=constant", "optimizer.min_lr=1e-5"}),
            "optimizer.min_lr: 1e-05" + constant);
  EXPECT_EQ(Told({"optimizer.decay=constant", "optimizer.decay_over=50%"}),
            "optimizer.decay_over: 50%" + constant);
  EXPECT_EQ(Told({"optimizer.decay=cosine", "optimizer.wsd.style=linear"}),
            "optimizer.wsd.style: linear has no effect, since optimizer.decay is not wsd; leave it "
            "out, or set decay to wsd");
  EXPECT_EQ(Told({"optimizer.momentum=0.5"}),
            "optimizer.momentum: 0.5 has no effect, since optimizer.type is adamw; it is of sgd, "
            "leave it out");
  const std::string sgd =
      " has no effect, since optimizer.type is sgd; it is of adamw, leave it out";
  EXPECT_EQ(Told({"optimizer.type=sgd", "optimizer.beta2=0.95"}), "optimizer.beta2: 0.95" + sgd);
  EXPECT_EQ(Told({"optimizer.type=sgd", "optimizer.eps=1e-6"}), "optimizer.eps: 1e-06" + sgd);
  EXPECT_EQ(Told({"optimizer.weight_decay_style=linear"}),
            "optimizer.weight_decay_style: linear has no effect, since weight decay ends at "
            "optimizer.weight_decay; give optimizer.weight_decay_end, or leave this out");
}

TEST(FieldEffects, OfDataAndEvaluation) {
  EXPECT_EQ(Told({"data={train: [text_document], split: \"50,25,25\", tokenizer: {type: byte}}"}),
            "data.split: 50,25,25 has no effect, since it divides data.path, and the job has "
            "data.train; leave it out");
  const std::string mock = " has no effect, since data.mock reads no files; leave it out";
  EXPECT_EQ(Told({"data={mock: true, split: \"50,25,25\", tokenizer: {type: byte}}"}),
            "data.split: 50,25,25 has no effect, since it divides data.path, and the job has "
            "data.mock; leave it out");
  EXPECT_EQ(Told({"data={mock: true, split_by: tokens, tokenizer: {type: byte}}"}),
            "data.split_by: tokens has no effect, since it divides data.path, and the job has "
            "data.mock; leave it out");
  EXPECT_EQ(Told({"data={mock: true, loader_threads: 4, tokenizer: {type: byte}}"}),
            "data.loader_threads: 4" + mock);
  EXPECT_EQ(Told({"data={mock: true, reset_positions: true, tokenizer: {type: byte}}"}),
            "data.reset_positions: true" + mock);
  const std::string off =
      "has no effect, since training.eval.every_iters is 0; give it, or leave this out";
  EXPECT_EQ(Told({"training.eval.iters=100"}), "training.eval.iters: 100 " + off);
  EXPECT_EQ(Told({"data={train: [a], valid: [b], test: [c], tokenizer: {type: byte}}"}),
            "data.valid: " + off +
                "\ndata.test: has no effect, since training evaluates on the validation split "
                "alone; leave it out");
  EXPECT_EQ(Told({"data={train: [a], valid: [b], tokenizer: {type: byte}}",
                  "training.eval={every_iters: 5, iters: 2}"}),
            "");
}

TEST(FieldEffects, OfCheckpointsAndEnds) {
  const std::string none =
      " has no effect, since checkpoint.directory is none; give a directory, or leave this out";
  EXPECT_EQ(Told({"checkpoint.directory=none", "checkpoint.keep_every=100"}),
            "checkpoint.keep_every: 100" + none);
  EXPECT_EQ(Told({"checkpoint.directory=none", "checkpoint.keep_last=10"}),
            "checkpoint.keep_last: 10" + none);
  EXPECT_EQ(Told({"checkpoint.directory=none", "checkpoint.async_save=true"}),
            "checkpoint.async_save: true" + none);
  EXPECT_EQ(Told({"checkpoint.keep_last=10"}), "") << "the directory may have more";
  EXPECT_EQ(Told({"checkpoint.keep_every=100"}),
            "checkpoint.keep_every: 100 has no effect, since the job saves at its end alone; give "
            "checkpoint.every_iters, or leave this out");
  EXPECT_EQ(Told({"training.exit_at_iter=1000"}),
            "training.exit_at_iter: 1000 has no effect, since the run ends at step 40; give less, "
            "or leave it out");
  EXPECT_EQ(Told({"training.exit_interval=40"}),
            "training.exit_interval: 40 has no effect, since the run ends at step 40; give less, "
            "or leave it out");
  EXPECT_EQ(Told({"training.exit_at_iter=39", "training.exit_interval=7"}), "");
}

TEST(FieldEffects, OfModelAndLayout) {
  EXPECT_EQ(Told({"parallel.bucket_size=1MiB", "parallel.overlap.param_gather=false"}),
            "parallel.bucket_size: 1MiB has no effect, since the job has one rank; leave it out\n"
            "parallel.overlap.param_gather: false has no effect, since parallel.data is 1; leave "
            "it out");
  EXPECT_EQ(Told({"parallel.data=2", "parallel.overlap.param_gather=false"}),
            "parallel.overlap.param_gather: false has no effect, since parallel.zero_stage is 0; "
            "set it to 1, or leave this out");
  EXPECT_EQ(Told({"parallel.data=2", "parallel.zero_stage=1", "parallel.bucket_size=1MiB",
                  "parallel.overlap.param_gather=false"}),
            "");
  EXPECT_EQ(Told({"model.position=rope", "model.max_positions=64"}),
            "model.max_positions: 64 has no effect, since only model.position learned has a table "
            "of positions; leave it out");
  EXPECT_EQ(Told({"data.reset_positions=true"}), "");
  EXPECT_EQ(Told({"data.reset_positions=true", "model.position=rope"}), "");
  EXPECT_EQ(Told({"data.reset_positions=true", "model.position=alibi"}),
            "data.reset_positions: true has no effect, since model.position alibi counts "
            "distances, which do not restart; leave it out");
  EXPECT_EQ(Told({"data.reset_positions=true", "model.position=none"}),
            "data.reset_positions: true has no effect, since model.position none has no positions; "
            "leave it out");
  EXPECT_EQ(Told({"model.init_std=0.01", "checkpoint.load=other/step-00000010-e0001",
                  "checkpoint.load_kind=weights"}),
            "model.init_std: 0.01 has no effect, since checkpoint.load names the weights to begin "
            "with; leave it out");
  EXPECT_EQ(Told({"training.deterministic=true"}),
            "training.deterministic: true has no effect, since the job runs on CPU slots, where "
            "the same run twice is always equal to the last bit; leave it out");
  EXPECT_EQ(Told({"placement={}", "training.deterministic=true"}), "") << "the device is open";
}

TEST(FieldEffects, WhatIsRefusedIsNotSaidTwice) {
  EXPECT_EQ(Told({"bench.steps=7"}), "refused: bench.steps: 7 is for kind bench");
  EXPECT_EQ(Told({"training.loss_scale.window=500"}),
            "refused: training.loss_scale.window: 500 is for training.precision fp16 only");
  EXPECT_EQ(Told({"model.rope.base=500000"}),
            "refused: model.rope.base: 500000 is for model.position rope only");
}

// A job as it is printed has all its defaults; submitted again it draws no word.
TEST(FieldEffects, DefaultsThatAreWrittenOutAreNotSaid) {
  for (const std::vector<std::string>& overrides :
       std::vector<std::vector<std::string>>{{},
                                             {"optimizer.decay=constant"},
                                             {"optimizer.type=sgd"},
                                             {"checkpoint.directory=none"},
                                             {"model.position=rope"},
                                             {"data={mock: true, tokenizer: {type: byte}}"}}) {
    v1::JobSpec job;
    ASSERT_EQ(FormatFaults(LoadJob(kTiny, overrides, {}, &job)), "");
    v1::JobSpec again;
    ASSERT_EQ(FormatFaults(LoadJob(ToYaml(job), {}, {}, &again)), "");
    EXPECT_EQ(fmt::format("{}", fmt::join(NoteLines(FieldNotes(again)), "\n")), "")
        << (overrides.empty() ? "" : overrides[0]);
  }
}

TEST(FieldEffects, AnOddNumberOfRotatedChannelsIsSaid) {
  const std::string head =
      "model={layers: 2, hidden_size: 20, heads: 2, seq_length: 32, "
      "position: rope, rope: {percent: ";
  EXPECT_EQ(Told({head + "0.5}}"}),
            "model.rope.percent: 0.5 of head_dim 10 are 5 channels, of which 4 are turned, in "
            "pairs; Megatron-LM turns 6. Nearest: 0.4 (4 channels) or 0.6 (6 channels)");
  EXPECT_EQ(Told({head + "0.4}}"}), "");
  EXPECT_EQ(Told({head + "0.6}}"}), "");
}

TEST(KeepEvery, IsRefusedWhereNoSaveHitsIt) {
  const auto told = [](const std::string& every, const std::string& keep) {
    return Told({"training.train_iters=3000", every, "checkpoint.keep_every=" + keep});
  };
  EXPECT_EQ(told("checkpoint.every_iters=10", "25"),
            "refused: checkpoint.keep_every: 25 is not a multiple of checkpoint.every_iters 10, so "
            "steps that it divides are not saved; nearest: 20 or 30");
  EXPECT_EQ(told("checkpoint.every_iters=10", "20"), "");
  EXPECT_EQ(told("checkpoint.every=1s", "20"),
            "refused: checkpoint.keep_every: 20 keeps steps that it divides, but saves by the "
            "clock (checkpoint.every) hit them by chance alone; give checkpoint.every_iters, of "
            "which it is a multiple");
  EXPECT_EQ(told("checkpoint={every: 1s, every_iters: 10}", "20"), "");
}

// Which an earlier version has accepted: ranks, and updates of something else, take it as it is.
TEST(KeepEvery, OfAStoredJobStays) {
  const std::vector<std::string> overrides = {"checkpoint.every_iters=10",
                                              "checkpoint.keep_every=25"};
  v1::JobSpec job;
  ASSERT_EQ(FormatFaults(LoadJob(kTiny, overrides, {.stored = true}, &job)), "");
  EXPECT_EQ(FormatFaults(CompleteJob({.stored = true}, &job)), "");
  const auto update = [&job](const v1::JobSpec& changes) {
    std::vector<FieldChange> seen;
    return FormatFaults(
        ApplyUpdate({}, {.changes = changes, .clear = {}, .remove_labels = {}}, &job, &seen));
  };
  v1::JobSpec changes;
  changes.set_priority(5);
  EXPECT_EQ(update(changes), "");
  EXPECT_EQ(job.priority(), 5);
  changes.mutable_checkpoint()->set_every_iters(20);
  EXPECT_EQ(update(changes),
            "checkpoint.keep_every: 25 is not a multiple of checkpoint.every_iters 20, so steps "
            "that it divides are not saved; nearest: 20 or 40");
  changes.mutable_checkpoint()->set_every_iters(5);
  EXPECT_EQ(update(changes), "");
}

}  // namespace
}  // namespace mt::spec
