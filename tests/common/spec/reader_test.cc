// Kinds generate and eval: what they have, what they get by themselves, and what is refused because
// another kind has it.
#include <gtest/gtest.h>

#include "common/spec/derived.h"
#include "common/spec/field_effects.h"
#include "common/spec/job_kind.h"
#include "common/spec/print.h"
#include "common/spec/update.h"
#include "tests/common/spec/job_text.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;

constexpr std::string_view kGenerate = R"(
name: look
kind: generate
read: {checkpoint: default/demo}
generate:
  prompts: ["Once upon a time, there was", "two\nlines\tand a tab", ""]
)";
constexpr std::string_view kScores = R"(
name: marks
kind: eval
read: {checkpoint: default/demo, tag: best, output: json}
eval: {file: tasks/all.yaml}
)";

std::string ReaderFaults(std::string_view text, const std::vector<std::string>& overrides,
                         const ValidateContext& context = {}) {
  v1::JobSpec job;
  return FormatFaults(LoadJob(text, overrides, context, &job));
}

TEST(Reader, HasDefaultsOfItsOwnSectionsAlone) {
  v1::JobSpec job;
  ASSERT_EQ(FormatFaults(LoadJob(kGenerate, {}, {}, &job)), "");
  EXPECT_TRUE(KindOf(job).reads);
  EXPECT_EQ(job.generate().tokens(), 64);
  EXPECT_EQ(job.generate().seed(), 1234);
  EXPECT_EQ(job.read().output(), v1::Read::OUTPUT_TEXT);
  EXPECT_FALSE(job.read().has_precision()) << "auto";
  EXPECT_EQ(job.placement().slots(), 1);
  EXPECT_EQ(job.checkpoint().directory(), "none");
  EXPECT_EQ(job.resilience().timeouts().load(), 900'000);
  EXPECT_FALSE(job.has_model());
  EXPECT_FALSE(job.has_training());
  EXPECT_FALSE(job.has_eval());
  EXPECT_FALSE(job.resilience().timeouts().has_collective());
  ASSERT_EQ(job.generate().prompts_size(), 3);
  EXPECT_EQ(job.generate().prompts(0), "Once upon a time, there was");
  EXPECT_EQ(job.generate().prompts(1), "two\nlines\tand a tab");
  EXPECT_EQ(job.generate().prompts(2), "");
  EXPECT_EQ(WorldSize(job), 1);
  EXPECT_EQ(MeshSizesOf(job), layout::MeshSizes());
  EXPECT_EQ(CheckpointDirectory(job), "");
  EXPECT_EQ(LayoutText(job), "");
  EXPECT_EQ(RankPlaceText(job, 0), "");
}

// Completed again, as the coordinator and the rank do, and read again as it is printed.
TEST(Reader, StaysAsItIs) {
  for (const std::string_view text : {kGenerate, kScores}) {
    v1::JobSpec job;
    ASSERT_EQ(FormatFaults(LoadJob(text, {}, {.of_service = true}, &job)), "");
    const std::string once = ToJson(job);
    EXPECT_EQ(FormatFaults(CompleteJob({.stored = true}, &job)), "");
    EXPECT_EQ(ToJson(job), once);
    v1::JobSpec again;
    ASSERT_EQ(FormatFaults(LoadJob(ToYaml(job), {}, {}, &again)), "") << ToYaml(job);
    EXPECT_EQ(ToJson(again), once);
    EXPECT_EQ(once.find("\"model\""), std::string::npos) << once;
    EXPECT_TRUE(FieldNotes(job).empty());
  }
}

TEST(Reader, WhatOtherKindsHaveIsRefused) {
  EXPECT_EQ(ReaderFaults(kGenerate, {"model.layers=2", "checkpoint.keep_last=3"}),
            "model.layers: means nothing for kind generate, which reads a checkpoint on one rank; "
            "leave it out\n"
            "checkpoint.keep_last: means nothing for kind generate, which reads a checkpoint on "
            "one rank; leave it out");
  EXPECT_EQ(ReaderFaults(kScores, {"generate.tokens=5"}),
            "generate.tokens: is for kind generate, and this job is of kind eval");
  EXPECT_EQ(FaultsOf({"read.checkpoint=demo", "eval.file=tasks.yaml"}),
            "read.checkpoint: is for kinds generate and eval, and this job is of kind train\n"
            "eval.file: is for kind eval, and this job is of kind train");
  EXPECT_EQ(ReaderFaults(kScores, {"resilience.timeouts.collective=1m"}),
            "resilience.timeouts.collective: means nothing for kind eval, which reads a checkpoint "
            "on one rank; leave it out");
  EXPECT_EQ(ReaderFaults(kGenerate, {"checkpoint.directory=here"}),
            "checkpoint.directory: a reader saves nothing; leave it out, and name what is read by "
            "read.checkpoint");
  EXPECT_EQ(ReaderFaults(kGenerate, {"placement.slots=2"}),
            "placement.slots: is 2, but a checkpoint is read by one rank; leave it out");
  EXPECT_EQ(ReaderFaults(kGenerate, {"resilience.deadline=5m", "priority=3",
                                     "placement.exclusive=true", "labels={team: nlp}"}),
            "");
}

TEST(Reader, WhatItMustHaveAndWhatGoesTogether) {
  EXPECT_EQ(ReaderFaults("{name: x, kind: generate}", {}),
            "read.checkpoint: required: A directory of checkpoints, of which the newest complete "
            "one is read, or one of them.");
  EXPECT_EQ(ReaderFaults("{name: x, kind: eval, read: {checkpoint: a}}", {}),
            "eval.file: required: The task file: what is scored, and how. Files that it names lie "
            "below data_root, too.");
  EXPECT_EQ(ReaderFaults(kGenerate, {"read.checkpoint=/abs"}).substr(0, 17), "read.checkpoint: ");
  EXPECT_EQ(ReaderFaults(kScores, {"read.step=5"}),
            "read.tag: read.step names a checkpoint, too; keep one");
  EXPECT_EQ(ReaderFaults(kGenerate, {"generate.samples=3"}),
            "generate.samples: 3 samples without a temperature would be 3 times the same: set "
            "generate.temperature, such as 0.8");
  EXPECT_EQ(ReaderFaults(kGenerate, {"generate.top_k=40"}),
            "generate.top_k: 40 chooses among what is drawn, and nothing is without a temperature: "
            "set generate.temperature, such as 0.8");
  EXPECT_EQ(ReaderFaults(kGenerate, {"generate.temperature=0.8", "generate.samples=3",
                                     "generate.top_k=40", "generate.top_p=0.9"}),
            "");
  EXPECT_EQ(ReaderFaults(kGenerate, {"generate.logprobs=true"}),
            "generate.logprobs: are a part of the JSON: set read.output to json");
  EXPECT_EQ(ReaderFaults(kGenerate, {"generate.stops=[\"\"]"}),
            "generate.stops: an empty text would end a sample at once");
  EXPECT_EQ(ReaderFaults(kGenerate, {"generate.prompts=[\"a\\u001bb\"]"}),
            "generate.prompts: has the control character U+001B");
  EXPECT_EQ(ReaderFaults(kGenerate, {"generate.prompts=[\"a\\r\"]"}),
            "generate.prompts: has the control character U+000D");
  EXPECT_EQ(ReaderFaults(kGenerate, {"data.tokenizer.type=hf"}),
            "data.tokenizer.file: required for hf: a tokenizer.json below the data root");
}

// From the wire, where no text was read.
TEST(Reader, TextsOfAListAreChecked) {
  v1::JobSpec job;
  ASSERT_EQ(FormatFaults(LoadJob(kGenerate, {}, {}, &job)), "");
  job.mutable_generate()->add_prompts("\x1b[2J");
  EXPECT_EQ(FormatFaults(CompleteJob({}, &job)),
            "generate.prompts: text 4: has the control character U+001B");
}

// Joiners, marks of direction and of the order of bytes are what people write.
TEST(Reader, TextsHaveWhatScriptsHave) {
  constexpr char kJoined[] = "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB \xE2\x80\x8F";
  v1::JobSpec job;
  ASSERT_EQ(FormatFaults(
                LoadJob(kGenerate, {"generate.prompts=[\"a\\u200db\", \"\\ufeffc\"]"}, {}, &job)),
            "");
  EXPECT_EQ(job.generate().prompts(0),
            "a\xE2\x80\x8D"
            "b");
  job.mutable_generate()->add_prompts(kJoined);
  EXPECT_EQ(FormatFaults(CompleteJob({}, &job)), "");
  v1::JobSpec again;
  ASSERT_EQ(FormatFaults(LoadJob(ToYaml(job), {}, {}, &again)), "") << ToYaml(job);
  EXPECT_EQ(ToJson(again), ToJson(job));
  EXPECT_EQ(again.generate().prompts(2), kJoined);
}

TEST(Reader, ItsTextsHaveABound) {
  const auto faults = [](int prompts, int64_t samples) {
    v1::JobSpec job;
    EXPECT_EQ(FormatFaults(LoadJob(kGenerate, {"generate.temperature=1"}, {}, &job)), "");
    job.mutable_generate()->clear_prompts();
    for (int i = 0; i < prompts; ++i) job.mutable_generate()->add_prompts("a");
    job.mutable_generate()->set_samples(samples);
    return FormatFaults(CompleteJob({}, &job));
  };
  EXPECT_EQ(faults(16, 4096), "");
  EXPECT_EQ(faults(65'536, 1), "");
  EXPECT_EQ(faults(0, 4096), "");
  EXPECT_EQ(faults(17, 4096),
            "generate.samples: 69632 texts (17 prompts, of each 4096), and a job makes at most "
            "65536: ask for fewer, or submit several jobs");
  EXPECT_EQ(faults(65'537, 1),
            "generate.prompts: 65537 texts (65537 prompts, of each 1), and a job makes at most "
            "65536: ask for fewer, or submit several jobs");
}

TEST(Reader, ItsDevice) {
  v1::JobSpec job;
  ASSERT_EQ(FormatFaults(LoadJob(kGenerate, {}, {}, &job)), "");
  EXPECT_FALSE(job.placement().has_device());
  EXPECT_EQ(FormatFaults(ResolveForSlots({.cores_per_node = 8, .slots_per_node = 4}, &job)), "");
  EXPECT_EQ(job.placement().threads_per_rank(), 2);
  EXPECT_FALSE(job.has_training()) << "the checkpoint tells the precision";
  ASSERT_EQ(FormatFaults(LoadJob(kGenerate, {"read.precision=fp64"}, {}, &job)), "");
  EXPECT_EQ(job.placement().device(), v1::Placement::DEVICE_CPU);
  EXPECT_EQ(ReaderFaults(kGenerate, {"read.precision=fp64", "placement.device=gpu"}),
            "read.precision: fp64 runs on CPU slots only; use fp32 or bf16, or device cpu");
  EXPECT_EQ(ReaderFaults(kGenerate, {"placement={device: gpu, threads_per_rank: 2}"}),
            "placement.threads_per_rank: is for CPU slots, and this job runs on a GPU; leave it "
            "out, or use device cpu");
}

TEST(Reader, ASeedWithoutDrawsIsSaid) {
  v1::JobSpec job;
  ASSERT_EQ(FormatFaults(LoadJob(kGenerate, {"generate.seed=5"}, {}, &job)), "");
  EXPECT_EQ(NoteLines(FieldNotes(job)),
            std::vector<std::string>{
                "generate.seed: 5 has no effect, since generate.temperature is 0, which takes the "
                "likeliest token; leave it out"});
}

TEST(Reader, OnlyItsPlaceInTheQueueAndItsLabelsChange) {
  v1::JobSpec job;
  ASSERT_EQ(FormatFaults(LoadJob(kGenerate, {}, {}, &job)), "");
  const auto update = [&job](const v1::JobSpec& changes) {
    std::vector<FieldChange> seen;
    return FormatFaults(
        ApplyUpdate({}, {.changes = changes, .clear = {}, .remove_labels = {}}, &job, &seen));
  };
  v1::JobSpec changes;
  changes.set_priority(7);
  EXPECT_EQ(update(changes), "");
  EXPECT_EQ(job.priority(), 7);
  changes.Clear();
  changes.mutable_checkpoint()->set_every_iters(20);
  EXPECT_EQ(update(changes),
            "checkpoint.every_iters: means nothing for kind generate, which reads a checkpoint on "
            "one rank; leave it out");
}

// A job that trains is the same to the byte as before there were readers.
TEST(Reader, OtherJobsHaveNothingOfIt) {
  const std::string json = ToJson(Load().job);
  for (const char* const section : {"\"read\"", "\"generate\"", "\"file\""})
    EXPECT_EQ(json.find(section), std::string::npos) << section;
  EXPECT_FALSE(HasField(KindOf(Load().job), "read"));
  EXPECT_TRUE(HasField(KindOf(Load().job), "training.eval"));
}

}  // namespace
}  // namespace mt::spec
