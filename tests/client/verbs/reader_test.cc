// `mtctl generate JOB` and `eval JOB`: a job of the cluster reads, its text comes here, and what
// keeps it from beginning is said before anything is submitted.
#include <filesystem>
#include <fstream>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/commands/in_job.h"
#include "client/commands/no_slot.h"
#include "common/base/files.h"
#include "tests/client/fake_coordinator.h"

namespace mt::client {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;

constexpr char kReaderUid[] = "0f8fad5b-d9cb-469f-a165-70867728950e";  // as the fake one has it
constexpr char kRead[] = "step-00000020-e0001 of demo: 8 tokens in 0.1 s";

v1::WhoHoldsResponse FullOfGpus() {
  v1::WhoHoldsResponse answer;
  answer.set_why("needs 1 GPU slot, 0 of 4 are free");
  answer.set_device(v1::GPU);
  const auto add = [&answer](const char* node, v1::DeviceType device, int slots, const char* name) {
    auto& holder = *answer.add_holders();
    holder.set_node(node);
    holder.set_device(device);
    holder.set_slots(slots);
    holder.set_job_uid(std::string("uid-of-") + name);
    holder.set_name(name);
    holder.set_namespace_("default");
    holder.set_state(v1::RUNNING);
    return &holder;
  };
  add("n1", v1::GPU, 1, "small")->set_state(v1::PAUSED_HELD);
  add("n1", v1::GPU, 1, "demo");
  add("n2", v1::GPU, 2, "demo");
  add("n2", v1::CPU_SLOT, 1, "other");
  auto& slots = *answer.add_slots();
  slots.set_device(v1::CPU_SLOT);
  slots.set_total(4);
  slots.set_free(3);
  return answer;
}

class ReaderVerbTest : public testing::Test {
 protected:
  void SetUp() override {
    v1::Job reader = MakeJob("reads", v1::RUNNING);
    reader.set_uid(kReaderUid);
    v1::Job demo = MakeJob("demo", v1::RUNNING);
    demo.mutable_spec()->mutable_checkpoint()->set_directory("default/demo");
    v1::Job plain = MakeJob("plain", v1::RUNNING);
    plain.mutable_spec()->mutable_checkpoint()->set_directory("none");
    state().jobs = {reader, demo, plain};
    EndAs(v1::SUCCEEDED, kRead);
  }
  FakeState& state() { return server_.state(); }
  // The job ends so when its text was sent, and its client has called, if it is to.
  void EndAs(v1::JobState end, const std::string& message) {
    state().after_output = [end, message](FakeState* fake) {
      if (fake->submitted.held() && fake->held.empty()) return;
      fake->jobs[0].set_state(end);
      fake->jobs[0].set_message(message);
    };
  }
  void Writes(const std::vector<std::string>& pieces) {
    std::vector<v1::LogChunk> chunks;
    int64_t offset = 0;
    for (const std::string& piece : pieces) {
      chunks.emplace_back();
      chunks.back().set_offset(offset);
      chunks.back().set_data(piece);
      offset += static_cast<int64_t>(piece.size());
    }
    chunks.emplace_back();
    chunks.back().set_end(true);
    state().outputs = {chunks};
  }
  Ran Generate(std::vector<std::string> args) {
    args.insert(args.begin(), "generate");
    return Mtctl(&server_, std::move(args));
  }
  const v1::JobSpec& spec() { return state().submitted.spec(); }

  FakeCoordinator server_;
};

TEST_F(ReaderVerbTest, AJobReadsAndItsTextComesHere) {
  Writes({"Once up", "on\n"});
  const Ran ran = Generate({"demo", "--prompt", "Once", "--tokens", "8"});
  EXPECT_EQ(ran.code, kExitOk) << ran.err;
  EXPECT_EQ(ran.out, "Once upon\n");
  EXPECT_EQ(ran.err, std::string(kRead) + "\n");
  EXPECT_TRUE(state().submitted.held());
  EXPECT_THAT(spec().name(), MatchesRegex("generate-[0-9a-f]+"));
  EXPECT_EQ(spec().namespace_(), "default");
  EXPECT_EQ(spec().kind(), v1::JobSpec::KIND_GENERATE);
  EXPECT_EQ(spec().read().checkpoint(), "default/demo");
  EXPECT_FALSE(spec().read().has_step());
  EXPECT_EQ(spec().read().output(), v1::Read::OUTPUT_TEXT);
  EXPECT_THAT(spec().generate().prompts(), ElementsAre("Once"));
  EXPECT_EQ(spec().generate().tokens(), 8);
  EXPECT_FALSE(spec().placement().has_device()) << "the nodes say";
  EXPECT_FALSE(spec().placement().has_threads_per_rank());
  EXPECT_FALSE(spec().has_training());
  ASSERT_FALSE(state().held.empty());
  EXPECT_EQ(state().held[0], kReaderUid);
  ASSERT_GE(state().outputs_asked.size(), 2u);
  EXPECT_TRUE(state().outputs_asked[0].follow());
  EXPECT_FALSE(state().outputs_asked.back().follow());
  EXPECT_EQ(state().outputs_asked.back().offset(), 10) << "what may have come since";
}

TEST_F(ReaderVerbTest, ForPrograms) {
  Writes({"{\"texts\": [\"\\u001b\"]}\n"});
  const Ran ran = Generate({"demo", "-o", "json", "--logprobs"});
  EXPECT_EQ(ran.code, kExitOk) << ran.err;
  EXPECT_EQ(ran.out, "{\"texts\": [\"\\u001b\"]}\n");
  EXPECT_EQ(ran.err, "");
  EXPECT_EQ(spec().read().output(), v1::Read::OUTPUT_JSON);
  EXPECT_TRUE(spec().generate().logprobs());
  EXPECT_EQ(Generate({"demo", "-o", "yaml"}).code, kExitUsage);
}

// What JSON need not escape, a terminal would obey.
TEST_F(ReaderVerbTest, JsonHoldsNothingThatATerminalObeys) {
  Writes({"{\"text\": \"\xc2", "\x9b\x7f\"}\n"});
  const Ran ran = Generate({"demo", "-o", "json"});
  EXPECT_EQ(ran.code, kExitOk) << ran.err;
  EXPECT_EQ(ran.out, "{\"text\": \"\\u009b\\u007f\"}\n");
}

TEST_F(ReaderVerbTest, FlagsAreFields) {
  Writes({"x\n"});
  EXPECT_EQ(Generate({"demo:20", "--temperature", "0.5", "--top-k",   "4", "--top-p",
                      "0.9",     "--samples",     "2",   "--seed",    "7", "--stop",
                      "END",     "--device",      "cpu", "--threads", "3", "--precision",
                      "fp64",    "--tokenizer",   "byte"})
                .code,
            kExitOk);
  EXPECT_EQ(spec().read().step(), 20);
  EXPECT_EQ(spec().read().precision(), v1::Training::PRECISION_FP64);
  EXPECT_EQ(spec().generate().temperature(), 0.5);
  EXPECT_EQ(spec().generate().top_k(), 4);
  EXPECT_EQ(spec().generate().top_p(), 0.9);
  EXPECT_EQ(spec().generate().samples(), 2);
  EXPECT_EQ(spec().generate().seed(), 7);
  EXPECT_THAT(spec().generate().stops(), ElementsAre("END"));
  EXPECT_EQ(spec().placement().device(), v1::Placement::DEVICE_CPU);
  EXPECT_EQ(spec().placement().threads_per_rank(), 3);
  EXPECT_EQ(spec().data().tokenizer().type(), v1::Data::Tokenizer::TYPE_BYTE);
  Generate({"demo:best"});
  EXPECT_EQ(spec().read().tag(), "best");
  Generate({"demo:step-00000020-e0001"});
  EXPECT_EQ(spec().read().checkpoint(), "default/demo/step-00000020-e0001");
  Generate({"demo", "--tag", "last"});
  EXPECT_EQ(spec().read().tag(), "last");
}

TEST_F(ReaderVerbTest, WhatCannotBeAskedForIsRefusedBeforeASubmission) {
  for (const auto& [args, words] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"plain"}, "job 'plain' saves no checkpoints"},
           {{"nowhere"}, "no job 'nowhere'"},
           {{"demo:20", "--tag", "best"}, "named twice"},
           {{"demo", "--raw"}, "--local"},
           {{"demo", "--prompt", "\x1b[2J"}, "--prompt has the control character U+001B"},
           {{"demo", "--tokenizer", "morse"}, "--tokenizer morse is unknown"},
           {{"demo", "--prompt", "-", "--prompt", "-"}, "given twice"}}) {
    const Ran ran = Generate(args);
    EXPECT_EQ(ran.code, kExitInvalidInput) << words;
    EXPECT_THAT(ran.err, HasSubstr(words));
  }
  EXPECT_THAT(state().request_ids, IsEmpty());
  EXPECT_EQ(Generate({"demo", "--local", "--wait"}).code, kExitUsage);
  EXPECT_EQ(Generate({"./there", "--detach"}).code, kExitUsage);
}

TEST_F(ReaderVerbTest, AFullClusterIsSaidAndNothingIsSubmitted) {
  state().who_holds = {FullOfGpus()};
  const Ran ran = Generate({"demo"});
  EXPECT_EQ(ran.code, kExitError);
  EXPECT_THAT(ran.err,
              AllOf(HasSubstr("nothing was submitted: needs 1 GPU slot, 0 of 4 are free\n"),
                    HasSubstr("  demo (RUNNING): 3 GPU slots on n1 and n2\n"
                              "  small (PAUSED_HELD): 1 GPU slot on n1\n"),
                    HasSubstr("--wait ("), HasSubstr("--device cpu (3 of 4 CPU slots are free)"),
                    HasSubstr("--local ("), Not(HasSubstr("other"))));
  EXPECT_THAT(state().request_ids, IsEmpty());
  EXPECT_EQ(ran.out, "");
}

TEST_F(ReaderVerbTest, ASlotThatIsGivenBackIsTaken) {
  v1::WhoHoldsResponse free;
  free.set_starts(true);
  state().who_holds = {FullOfGpus(), free};
  Writes({"x\n"});
  const Ran ran = Generate({"demo"});
  EXPECT_EQ(ran.code, kExitOk) << ran.err;
  EXPECT_EQ(ran.out, "x\n");
  EXPECT_EQ(ran.err, std::string(kRead) + "\n");
}

TEST_F(ReaderVerbTest, WithWaitItIsSubmitted) {
  state().who_holds = {FullOfGpus()};
  Writes({"x\n"});
  const Ran ran = Generate({"demo", "--wait"});
  EXPECT_EQ(ran.code, kExitOk) << ran.err;
  EXPECT_THAT(ran.err, AllOf(HasSubstr("waiting: needs 1 GPU slot"), HasSubstr("demo (RUNNING)")));
  EXPECT_TRUE(state().submitted.held());
}

// A node may be away for a moment as the job ends: behind a restart of the coordinator, too.
TEST_F(ReaderVerbTest, TheTextOfAnEndedJobIsAskedForAgain) {
  state().jobs[0].set_state(v1::SUCCEEDED);
  state().jobs[0].set_message(kRead);
  v1::LogChunk away;
  away.set_end(true);
  away.set_error("node n1 is not connected");
  Writes({"Once upon\n"});
  state().outputs = {{away}, state().outputs[0]};
  const Ran ran = Generate({"demo"});
  EXPECT_EQ(ran.code, kExitOk) << ran.err;
  EXPECT_EQ(ran.out, "Once upon\n");
  EXPECT_EQ(ran.err, std::string(kRead) + "\n");
}

TEST_F(ReaderVerbTest, CtrlCCancelsIt) {
  state().after_output = nullptr;
  Writes({"Once up"});
  std::thread keys([] { PressCtrlCAfter("Once up", STDOUT_FILENO, 0); });
  const Ran ran = Generate({"demo"});
  keys.join();
  EXPECT_EQ(ran.code, kExitInterrupted) << ran.err;
  EXPECT_EQ(ran.out, "Once up\n");
  EXPECT_EQ(state().cancelled.job().uid(), kReaderUid);
  EXPECT_FALSE(state().cancelled.checkpoint_first());
}

TEST_F(ReaderVerbTest, DetachedItGoesOn) {
  state().after_output = nullptr;
  Writes({"Once up"});
  std::thread keys([] { PressCtrlCAfter("Once up", STDOUT_FILENO, 0); });
  const Ran ran = Generate({"demo", "--detach"});
  keys.join();
  EXPECT_EQ(ran.code, kExitInterrupted) << ran.err;
  EXPECT_THAT(ran.err, AllOf(HasSubstr("mtctl logs generate-"), HasSubstr(" goes on\n")));
  EXPECT_FALSE(state().submitted.held());
  EXPECT_THAT(state().held, IsEmpty());
  EXPECT_EQ(state().cancelled.job().uid(), "");
}

TEST_F(ReaderVerbTest, AJobThatFailsSaysWhy) {
  EndAs(v1::FAILED, "rank 0: no complete checkpoint\x1b[2J");
  Writes({});
  const Ran ran = Generate({"demo"});
  EXPECT_EQ(ran.code, kExitJobFailed);
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(ran.err, "mtctl: job reads is FAILED: rank 0: no complete checkpoint\\x1b[2J\n");
}

// With the weights that the job has now: where it trains and has memory for it, and its newest
// checkpoint would have been read.
TEST_F(ReaderVerbTest, AFullClusterOffersTheJobItself) {
  state().who_holds = {FullOfGpus()};
  state().jobs[1].mutable_spec()->mutable_training()->mutable_eval()->set_decode_tokens(64);
  EXPECT_TRUE(WritesInJob(state().jobs[1]));
  EXPECT_FALSE(WritesInJob(state().jobs[2])) << "no memory";
  EXPECT_THAT(Generate({"demo"}).err, HasSubstr("--in-job ("));
  EXPECT_THAT(Generate({"demo", "--tag", "best"}).err, Not(HasSubstr("--in-job")));
  state().jobs[1].set_state(v1::PAUSED_HELD);
  EXPECT_FALSE(WritesInJob(state().jobs[1]));
}

// Of a task file the path below the data root is asked for.
TEST_F(ReaderVerbTest, TaskFilesLieBelowTheDataRoot) {
  const std::string root = testing::TempDir() + "/reader_verb_" + std::to_string(::getpid());
  std::filesystem::create_directories(root + "/data/tasks");
  std::ofstream(root + "/data/tasks/one.yaml") << "tasks: []\n";
  std::ofstream(root + "/out.yaml") << "tasks: []\n";
  Writes({"text: 1\n"});
  const auto eval = [this](const std::string& file, const std::string& data_root) {
    std::vector<std::string> args = {"eval", "demo", "-f", file};
    if (!data_root.empty()) args.insert(args.end(), {"--data-root", data_root});
    return Mtctl(&server_, args);
  };
  const Ran ran = eval(root + "/data/tasks/one.yaml", root + "/data");
  EXPECT_EQ(ran.code, kExitOk) << ran.err;
  EXPECT_EQ(ran.out, "text: 1\n");
  EXPECT_EQ(spec().kind(), v1::JobSpec::KIND_EVAL);
  EXPECT_EQ(spec().eval().file(), "tasks/one.yaml");
  EXPECT_THAT(spec().name(), MatchesRegex("eval-[0-9a-f]+"));
  for (const std::string& data_root : {root + "/data", std::string()}) {
    const Ran refused = eval(root + "/out.yaml", data_root);
    EXPECT_EQ(refused.code, kExitInvalidInput);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("below the nodes' data root"), HasSubstr("--local")));
  }
  EXPECT_EQ(eval("tasks/not-here.yaml", "").code, kExitOk) << "as a job file has it";
  EXPECT_EQ(spec().eval().file(), "tasks/not-here.yaml");
  std::filesystem::remove_all(root);
}

TEST(NoSlotTest, HoldersOfManyNodesAndOfOthers) {
  v1::WhoHoldsResponse answer;
  answer.set_device(v1::CPU_SLOT);
  for (const char* node : {"n1", "n2", "n3"}) {
    auto& holder = *answer.add_holders();
    holder.set_node(node);
    holder.set_device(v1::CPU_SLOT);
    holder.set_slots(2);
    holder.set_job_uid("a");
    holder.set_name("wide");
    holder.set_namespace_("team");
    holder.set_state(v1::RUNNING);
  }
  auto& orphan = *answer.add_holders();
  orphan.set_node("n3");
  orphan.set_device(v1::CPU_SLOT);
  orphan.set_slots(1);
  orphan.set_job_uid("b");
  EXPECT_THAT(HolderLines(answer, "default"),
              ElementsAre("team/wide (RUNNING): 6 CPU slots on n1 and 2 more nodes",
                          "b (not a job of this coordinator): 1 CPU slot on n3"));
  EXPECT_THAT(HolderLines(answer, "team")[0], HasSubstr("wide (RUNNING)"));
  EXPECT_THAT(SlotAdvice(answer, false),
              AllOf(Not(HasSubstr("--device")), Not(HasSubstr("--in-job"))));
  EXPECT_THAT(SlotAdvice(answer, true), HasSubstr("--in-job ("));
}

}  // namespace
}  // namespace mt::client
