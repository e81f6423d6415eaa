// What is said when a job is submitted, how benchmarks are named; and runs of a job that was
// submitted again: what --attempt asks for, where rows say which attempt they are of, and names
// whose newest job has no run of its own.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "client/commands/submit_notes.h"
#include "common/spec/parse.h"
#include "common/spec/validate.h"
#include "tests/client/fake_coordinator.h"
#include "tests/worker/checkpoint/saved_state.h"
#include "tests/worker/checkpoint/temp_dir.h"

namespace mt::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class SubmitTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/mt-submit-test-" + std::to_string(::getpid()) + ".yaml";
    std::ofstream(path_)
        << "name: tiny\nmodel: {layers: 2, hidden_size: 32, heads: 2, seq_length: "
           "32}\ndata: {path: [text], tokenizer: {type: byte}}\n"
           "training: {train_iters: 4, micro_batch_size: 2, global_batch_size: 8}\n"
           "optimizer: {lr: 1.0e-3}\n";
  }
  void TearDown() override { std::remove(path_.c_str()); }
  Ran Submit(std::vector<std::string> more) {
    std::vector<std::string> args = {"submit", "-f", path_};
    args.insert(args.end(), more.begin(), more.end());
    return Mtctl(&server_, args);
  }
  FakeCoordinator server_;
  std::string path_;
};

TEST_F(SubmitTest, WorkThatADefaultMayLoseIsSaid) {
  EXPECT_THAT(Submit({}).err, HasSubstr("mtctl: note: no checkpoint is saved before the end"));
  EXPECT_THAT(Submit({"--set", "checkpoint.every_iters=2"}).err, Not(HasSubstr("note:")));
  EXPECT_THAT(Submit({"--set", "checkpoint.every=10m"}).err, Not(HasSubstr("note:")));
  EXPECT_THAT(Submit({"--set", "checkpoint.directory=none"}).err,
              HasSubstr("no checkpoints are saved"));
  EXPECT_THAT(Submit({"-o", "json"}).err, Not(HasSubstr("note:")));
}

TEST_F(SubmitTest, AnotherRunIsBegunOnlyWhereThatIsSaid) {
  EXPECT_EQ(Submit({}).code, 0);
  EXPECT_EQ(Submit({"--restart"}).code, 0);
  server_.state().break_next = 1;
  EXPECT_EQ(Submit({"--restart"}).code, 0) << "asked again when the connection breaks";
  EXPECT_EQ(server_.state().restarts, (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ(server_.state().request_ids[2], server_.state().request_ids[3]);
  EXPECT_EQ(Submit({"--restart", "--dry-run"}).code, kExitUsage) << "nothing is submitted";
  EXPECT_EQ(server_.state().restarts.size(), 4U);
}

TEST_F(SubmitTest, WhatOtherRunsHaveInItsDirectoryIsSaid) {
  v1::Job before = MakeJob("tiny", v1::SUCCEEDED);
  before.mutable_spec()->mutable_checkpoint()->set_directory("default/tiny");
  before.mutable_run()->set_id("run-a");
  for (const int64_t step : {10, 20}) {
    v1::CheckpointInfo* saved = before.add_checkpoints();
    saved->set_step(step);
    saved->set_run("run-a");
    saved->set_bytes(1 << 20);
  }
  const auto said = [&](std::vector<std::string> more) {
    server_.state().jobs = {before};
    more.insert(more.end(), {"--set", "checkpoint.every_iters=2"});
    return Submit(more).err;
  };
  EXPECT_THAT(said({}), Not(HasSubstr("other runs"))) << "it goes on with the run";
  const std::vector<std::string> fresh = {"--set", "checkpoint.fresh=true"};
  EXPECT_THAT(said(fresh),
              HasSubstr("note: 2 checkpoints of other runs (2.0 MiB) in its directory stay: mtctl "
                        "checkpoint list tiny tells whose, mtctl checkpoint delete tiny --run ID"));
  EXPECT_THAT(said({"--set", "checkpoint.fresh=true", "--set", "checkpoint.directory=b"}),
              Not(HasSubstr("other runs")));
  EXPECT_THAT(said({"--restart"}), HasSubstr("note: 2 checkpoints of other runs"));
  before.mutable_run()->set_beginning("fresh");
  EXPECT_THAT(said(fresh), Not(HasSubstr("other runs"))) << "that run goes on";
  before.mutable_run()->mutable_other_runs()->set_runs(1);
  before.mutable_run()->mutable_other_runs()->set_checkpoints(1);
  before.mutable_run()->mutable_other_runs()->set_bytes(1 << 20);
  EXPECT_THAT(said({}), HasSubstr("note: 1 checkpoint of other runs (1.0 MiB)"));
}

TEST_F(SubmitTest, WhatItReadsTakesAndChangesIsSaid) {
  const std::vector<std::string> saves = {"--set", "checkpoint.every_iters=2"};
  EXPECT_THAT(Submit(saves).err,
              HasSubstr("mtctl: reads 1.0k tokens in 4 steps; passes over the data follow from "
                        "their size: --data-root DIR tells them here, mtctl describe once it "
                        "runs\n"));
  EXPECT_THAT(Submit({"-o", "json"}).err, Not(HasSubstr("reads")));
  v1::Job before = MakeJob("tiny", v1::SUCCEEDED);
  const auto faults = spec::LoadJobFile(path_, {"optimizer.lr=3e-4", "checkpoint.every_iters=2"},
                                        {.of_service = true}, before.mutable_spec());
  ASSERT_TRUE(faults.empty()) << spec::FormatFaults(faults);
  before.mutable_run()->set_id("run-a");
  before.mutable_last_step()->set_tokens_per_second(8);
  for (const int64_t step : {1, 2}) {
    before.add_checkpoints()->set_step(step);
    before.mutable_checkpoints()->rbegin()->set_run("run-a");
  }
  before.add_checkpoints()->set_step(3);  // of another run
  const auto said = [&](std::vector<std::string> more) {
    server_.state().jobs = {before};
    more.insert(more.end(), saves.begin(), saves.end());
    return Submit(more).err;
  };
  const std::string on = said({});
  EXPECT_THAT(on, HasSubstr("reads 1.0k tokens in 4 steps, 512 of them ahead; "));
  EXPECT_THAT(on, HasSubstr("; about 1m04s at the 8 tokens/s that job tiny had on 2 slots\n"));
  EXPECT_THAT(on, HasSubstr("mtctl: differs from the checkpoint of step 2 that it goes on from: "
                            "optimizer.lr 0.0003 -> 0.001\n"));
  const std::string restart = said({"--restart"});
  EXPECT_THAT(restart, Not(HasSubstr("differs")));
  EXPECT_THAT(restart, HasSubstr("about 2m08s"));
  EXPECT_THAT(said({"--set", "checkpoint.fresh=true"}), Not(HasSubstr("differs")));
  EXPECT_THAT(said({"--set", "model.layers=3"}), Not(HasSubstr("about"))) << "of another model";
  // A job that had nothing to do has saved nothing: its run has what it went on from.
  before.clear_checkpoints();
  EXPECT_THAT(said({}), Not(HasSubstr("differs")));
  before.mutable_resumed_checkpoint()->set_step(4);
  EXPECT_THAT(said({}), Not(HasSubstr("differs"))) << "another run's, with which it began";
  before.mutable_resumed_checkpoint()->set_run("run-a");
  const std::string complete = said({});
  EXPECT_THAT(complete, HasSubstr("in 4 steps, all of them done: nothing is left to train, and "
                                  "--restart begins another run; "));
  EXPECT_THAT(complete, HasSubstr("differs from the checkpoint of step 4 that it goes on from: "
                                  "optimizer.lr 0.0003 -> 0.001\n"));
}

TEST_F(SubmitTest, PassesAreCountedWhereTheDataAre) {
  const std::filesystem::path root =
      testing::TempDir() + "/mt-submit-data-" + std::to_string(::getpid());
  std::filesystem::create_directories(root);
  std::ofstream(root / "in") << "aaaaaaaaaaaaaaa\n%\nbbbbbbbbbbbbbbb\n%\nccccccccccccccc\n";
  const Ran made = Mtctl(nullptr, {"data", "prepare", "--input", root / "in", "--separator", "%",
                                   "--append-eod", "--output", root / "text"});
  ASSERT_EQ(made.code, 0) << made.err;
  const std::vector<std::string> here = {"validate",         "-f",          path_, "--set",
                                         "data.split=1,0,0", "--data-root", root};
  const Ran valid = Mtctl(nullptr, here);
  EXPECT_EQ(valid.code, 0) << valid.err;
  EXPECT_THAT(valid.err, testing::ContainsRegex("reads 1.0k tokens in 4 steps; 2[0-9].[0-9] passes "
                                                "over train\n"));
  std::filesystem::remove(root / "text.bin");
  EXPECT_THAT(Submit({"--data-root", root}).err,
              HasSubstr("; passes over the data are not known here: "));
  EXPECT_THAT(Mtctl(nullptr, {"validate", "-f", path_}).err, HasSubstr("--data-root DIR tells"));
  std::filesystem::remove_all(root);
}

TEST_F(SubmitTest, ADirectoryThatNobodyNamesIsTheCoordinatorsToChoose) {
  const auto directory = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"-o", "json"});
    const auto tree = nlohmann::json::parse(Submit(more).out);
    const auto& spec = tree.contains("spec") ? tree.at("spec") : tree;
    return spec.at("checkpoint").value("directory", "unset");
  };
  EXPECT_EQ(directory({}), "unset");
  EXPECT_EQ(directory({"--set", "checkpoint.directory=tiny"}), "tiny");
  EXPECT_EQ(directory({"--set", "checkpoint.directory=auto"}), "unset");
  // What it chooses as a rule is shown before.
  EXPECT_EQ(directory({"--dry-run"}), "default/tiny");
  EXPECT_EQ(directory({"--dry-run", "-n", "team-b"}), "team-b/tiny");
  EXPECT_EQ(directory({"--dry-run", "--set", "checkpoint.directory=tiny"}), "tiny");
}

TEST_F(SubmitTest, AVocabularyThatTheTokenizerChangesIsSaid) {
  const Ran ran =
      Submit({"--set", "model={preset: gpt2-124m}", "--set", "checkpoint.every_iters=2"});
  EXPECT_THAT(ran.err, HasSubstr("note: preset gpt2-124m: the tokenizer has 257 tokens, not 50257, "
                                 "so the model has 86.04M parameters, not 124.44M"));
}

TEST_F(SubmitTest, AFieldWithoutEffectIsSaid) {
  const std::vector<std::string> sets = {"--set", "checkpoint.every_iters=2", "--set",
                                         "optimizer.momentum=0.5"};
  constexpr char kNote[] =
      "mtctl: note: optimizer.momentum: 0.5 has no effect, since optimizer.type is adamw; it is of "
      "sgd, leave it out\n";
  const Ran submitted = Submit(sets);
  EXPECT_EQ(submitted.code, 0);
  EXPECT_THAT(submitted.err, HasSubstr(kNote));
  std::vector<std::string> dry = sets;
  dry.emplace_back("--dry-run");
  EXPECT_EQ(Submit(dry).err, kNote);
  std::vector<std::string> validate = {"validate", "-f", path_};
  validate.insert(validate.end(), sets.begin(), sets.end());
  const Ran valid = Mtctl(nullptr, validate);
  EXPECT_EQ(valid.code, 0);
  EXPECT_THAT(valid.err, testing::EndsWith(kNote));
}

TEST_F(SubmitTest, MoreMemoryThanTheLargestNodeHasIsSaid) {
  v1::Node* node = server_.state().nodes.add_nodes();
  node->set_memory_bytes(64 << 10);
  const std::vector<std::string> saves = {"--set", "checkpoint.every_iters=2"};
  EXPECT_THAT(Submit(saves).err, testing::ContainsRegex("note: its 1 rank keep [0-9.]+ [KM]iB in "
                                                        "all, the largest node has 64.0 KiB"));
  node->set_memory_bytes(int64_t{1} << 30);
  EXPECT_THAT(Submit(saves).err, Not(HasSubstr("note:")));
  // A node with a GPU that is large enough.
  node->set_memory_bytes(64 << 10);
  v1::Slot* slot = node->add_slots();
  slot->set_device(v1::GPU);
  slot->mutable_gpu()->set_memory_bytes(int64_t{1} << 36);
  EXPECT_THAT(Submit(saves).err, Not(HasSubstr("note:")));
}

TEST_F(SubmitTest, NoRoomForTheCopyOfSavesIsSaid) {
  v1::Node* node = server_.state().nodes.add_nodes();
  node->set_memory_bytes(64 << 10);
  const std::vector<std::string> saves = {"--set", "checkpoint.every_iters=2", "--set",
                                          "checkpoint.async_save=true"};
  constexpr char kNote[] =
      "note: with the copies for checkpoint.async_save a rank takes [0-9.]+ [KM]iB of host memory, "
      "the largest node has 64.0 KiB";
  EXPECT_THAT(Submit(saves).err, testing::ContainsRegex(kNote));
  EXPECT_THAT(Submit({"--set", "checkpoint.every_iters=2"}).err, Not(HasSubstr("copies")));
  // Beside a GPU it is of the host's memory all the same.
  v1::Slot* slot = node->add_slots();
  slot->set_device(v1::GPU);
  slot->mutable_gpu()->set_memory_bytes(int64_t{1} << 36);
  EXPECT_THAT(Submit(saves).err, testing::ContainsRegex(kNote));
  node->set_memory_bytes(int64_t{1} << 30);
  EXPECT_THAT(Submit(saves).err, Not(HasSubstr("note:")));
}

// Ranks may be spread over all nodes, one rank may not.
TEST_F(SubmitTest, CopiesOfSavesFindRoomOnSeveralNodes) {
  const auto said = [&](const char* ranks, int nodes, int64_t bytes) {
    server_.state().nodes.clear_nodes();
    for (int i = 0; i < nodes; ++i) server_.state().nodes.add_nodes()->set_memory_bytes(bytes);
    const Ran ran = Submit({"--set", "checkpoint.every_iters=2", "--set",
                            "checkpoint.async_save=true", "--set", ranks});
    EXPECT_EQ(ran.code, 0) << ran.err;
    return ran.err.find("copies for checkpoint.async_save") != std::string::npos;
  };
  // The least power of two that is enough on one node.
  const auto enough = [&](const char* ranks) {
    int64_t bytes = 4 << 10;
    while (said(ranks, 1, bytes) && bytes < int64_t{1} << 40) bytes *= 2;
    return bytes;
  };
  const int64_t four = enough("parallel.data=4");
  EXPECT_TRUE(said("parallel.data=4", 1, four / 2));
  EXPECT_TRUE(said("parallel.data=4", 4, four / 8));
  EXPECT_FALSE(said("parallel.data=4", 4, four / 4)) << "a rank on each";
  const int64_t one = enough("parallel.data=1");
  EXPECT_TRUE(said("parallel.data=1", 4, one / 2)) << "in all it would be enough";
}

TEST_F(SubmitTest, ABenchmarkHasANameOfItsOwn) {
  v1::Job done = MakeJob("tiny-bench", v1::SUCCEEDED);
  done.mutable_bench()->set_steps(5);
  done.set_uid("0f8fad5b-d9cb-469f-a165-70867728950e");
  server_.state().watch = {done};
  server_.state().jobs = {done};
  EXPECT_THAT(Mtctl(&server_, {"bench", "-f", path_}).err, HasSubstr("benchmark tiny-bench ("));
  EXPECT_THAT(Mtctl(&server_, {"bench", "-f", path_, "--set", "name=mine"}).err,
              HasSubstr("benchmark mine ("));
  EXPECT_THAT(Mtctl(&server_, {"bench", "-f", path_, "--set", "name=bench-x"}).err,
              HasSubstr("benchmark bench-x ("));
}

class RunsTest : public testing::Test {
 protected:
  void SetUp() override {
    server_.state().jobs = {MakeJob("tiny", v1::RUNNING)};
    server_.state().answer_history = [this](const v1::QueryHistoryRequest& request) {
      asked_.push_back(request.job().uid() + "/" + std::to_string(request.attempt()));
      v1::History out;
      auto* loss = out.add_columns();
      loss->set_name("loss");
      for (int step = 1; step <= 4; ++step) {
        out.add_steps(step);
        out.add_times_us(step * 1'000);
        out.add_epochs(7);
        out.add_attempts(step <= 2 ? 1 : 2);
        loss->add_last(5 - step);
      }
      for (const int attempt : {1, 2}) {
        v1::EpochRun* run = out.add_runs();
        run->set_attempt(attempt);
        run->set_job_uid(attempt == 1 ? "uid-of-first" : "uid-of-tiny");
      }
      return out;
    };
  }
  // Puts a job of the same name before it that failed at once. A note is given once in a process,
  // so each test has a uid of its own.
  void FailAgain(const std::string& uid) {
    v1::Job failed = MakeJob("tiny", v1::FAILED);
    failed.set_uid(uid + "-empty");
    failed.clear_last_step();
    server_.state().jobs[0].set_uid(uid);
    server_.state().jobs.insert(server_.state().jobs.begin(), failed);
  }
  static std::string Note(const std::string& uid) {
    return "mtctl: the newest job tiny (" + uid +
           "-empty, FAILED) has no run of its own: this is job " + uid + " of that name\n";
  }
  FakeCoordinator server_;
  std::vector<std::string> asked_;
};

TEST_F(RunsTest, RowsSayWhichAttemptTheyAreOf) {
  EXPECT_EQ(Mtctl(&server_, {"metrics", "tiny", "-o", "csv"}).out,
            "step,time_us,epoch,attempt,loss,validation_loss,validation_perplexity,"
            "validation_bits_per_byte\r\n"
            "1,1000,7,1,4,,,\r\n2,2000,7,1,3,,,\r\n3,3000,7,2,2,,,\r\n4,4000,7,2,1,,,\r\n");
  EXPECT_THAT(Mtctl(&server_, {"metrics", "tiny", "-o", "jsonl"}).out,
              HasSubstr("{\"step\":3,\"time_us\":3000,\"epoch\":7,\"attempt\":2,\"loss\":2"));
  EXPECT_THAT(Mtctl(&server_, {"metrics", "tiny", "-o", "wide"}).out, HasSubstr("ATTEMPT"));
  EXPECT_THAT(Mtctl(&server_, {"metrics", "tiny"}).out, Not(HasSubstr("ATTEMPT")));
  EXPECT_THAT(Mtctl(&server_, {"metrics", "tiny", "--all", "-o", "csv"}).out,
              HasSubstr("3,3000,7,2,2,"));
}

TEST_F(RunsTest, OneAttemptIsAskedFor) {
  EXPECT_EQ(Mtctl(&server_, {"metrics", "tiny", "--attempt", "2"}).code, 0);
  EXPECT_EQ(Mtctl(&server_, {"plot", "tiny", "--attempt", "1", "--ascii"}).code, 0);
  EXPECT_THAT(asked_, ElementsAre("uid-of-tiny/2", "uid-of-tiny/1"));
  asked_.clear();
  EXPECT_EQ(Mtctl(&server_, {"metrics", "tiny", "--all", "--attempt", "2"}).code, 0);
  EXPECT_THAT(asked_, ElementsAre("uid-of-tiny/2", "uid-of-tiny/2"));
  EXPECT_EQ(Mtctl(&server_, {"metrics", "tiny", "--attempt", "0"}).code, kExitUsage);
  EXPECT_EQ(Mtctl(&server_, {"metrics", "tiny", "-w", "--attempt", "1"}).code, kExitUsage);
  asked_.clear();
  EXPECT_EQ(Mtctl(&server_, {"plot", "tiny", "--ascii"}).code, 0);
  EXPECT_THAT(asked_, ElementsAre("uid-of-tiny/0")) << "the coordinator joins the run";
}

TEST_F(RunsTest, DescribeShowsTheRunAndAnAttemptsJob) {
  v1::Job& job = server_.state().jobs[0];
  job.mutable_run()->set_id("run-a");
  job.set_attempt(2);
  job.set_resumed_from_step(30);
  job.mutable_resumed_checkpoint()->set_step(30);
  const std::string bare = Mtctl(&server_, {"describe", "tiny"}).out;
  EXPECT_THAT(bare, HasSubstr("2 of the run\n"));
  EXPECT_THAT(bare, HasSubstr("step 30, gone on from\n"));
  job.mutable_resumed_checkpoint()->set_path("/c/tiny/step-30");
  job.mutable_last_checkpoint()->set_step(20);
  EXPECT_THAT(Mtctl(&server_, {"describe", "tiny"}).out,
              testing::ContainsRegex("step 30, /c/tiny/step-30 .*, gone on from\n"));
  job.clear_resumed_checkpoint();
  EXPECT_THAT(Mtctl(&server_, {"describe", "tiny"}).out, Not(HasSubstr("gone on from")));
  v1::Job first = MakeJob("tiny", v1::FAILED);
  first.set_uid("uid-of-first");
  server_.state().jobs.push_back(first);
  EXPECT_THAT(Mtctl(&server_, {"describe", "tiny", "--attempt", "1"}).out,
              HasSubstr("uid-of-first"));
  EXPECT_THAT(Mtctl(&server_, {"describe", "job", "tiny", "--attempt", "2"}).out,
              HasSubstr("uid-of-tiny"));
  const Ran none = Mtctl(&server_, {"describe", "tiny", "--attempt", "3"});
  EXPECT_EQ(none.code, kExitInvalidInput);
  EXPECT_THAT(none.err, HasSubstr("attempt 3"));
}

TEST_F(RunsTest, MetricsAndPlotFallBackToAJobWithARun) {
  FailAgain("uid-of-metrics");
  const Ran metrics = Mtctl(&server_, {"metrics", "tiny"});
  EXPECT_EQ(metrics.code, 0);
  EXPECT_EQ(metrics.err, Note("uid-of-metrics"));
  EXPECT_THAT(asked_, ElementsAre("uid-of-metrics/0"));
  server_.state().jobs[1].set_uid("uid-of-plot");
  server_.state().jobs[0].set_uid("uid-of-plot-empty");
  asked_.clear();
  const Ran plot = Mtctl(&server_, {"plot", "tiny", "--ascii"});
  EXPECT_EQ(plot.err, Note("uid-of-plot"));
  EXPECT_THAT(asked_, ElementsAre("uid-of-plot/0"));
}

TEST_F(RunsTest, CheckpointsOfANameAreThoseOfAJobWithARun) {
  FailAgain("uid-of-get");
  const Ran get = Mtctl(&server_, {"get", "checkpoints", "tiny"});
  EXPECT_EQ(get.code, 0);
  EXPECT_THAT(get.err, HasSubstr(Note("uid-of-get")));
  EXPECT_EQ(server_.state().listed.job().uid(), "uid-of-get");
  const checkpoint::TempDir dir;
  const std::string directory = dir.File("ckpt");
  for (const int64_t step : {4, 8, 12})
    checkpoint::SaveState(directory, checkpoint::MakeState(step), checkpoint::Cut::kRows);
  server_.state().jobs[1].set_uid("uid-of-list");
  server_.state().jobs[0].set_uid("uid-of-list-empty");
  server_.state().jobs[1].set_state(v1::SUCCEEDED);
  server_.state().jobs[1].set_checkpoint_path(directory);
  const Ran list = Mtctl(&server_, {"checkpoint", "list", "tiny", "-o", "name"});
  EXPECT_EQ(list.code, 0) << list.err;
  EXPECT_EQ(list.err, Note("uid-of-list"));
  EXPECT_EQ(list.out, Mtctl(&server_, {"checkpoint", "list", directory, "-o", "name"}).out);
  server_.state().jobs[1].set_uid("uid-of-delete");
  server_.state().jobs[0].set_uid("uid-of-delete-empty");
  const Ran gone = Mtctl(&server_, {"checkpoint", "delete", "tiny:4", "--yes"});
  EXPECT_EQ(gone.code, 0) << gone.err;
  EXPECT_THAT(gone.err, HasSubstr(Note("uid-of-delete")));
  EXPECT_THAT(Mtctl(&server_, {"checkpoint", "list", directory, "-o", "name"}).out,
              Not(HasSubstr("step-00000004")));
}

// Neither a uid nor the only job of its name means another one.
TEST_F(RunsTest, OtherwiseANameIsTheNewestJob) {
  server_.state().jobs[0].clear_last_step();
  EXPECT_EQ(Mtctl(&server_, {"metrics", "tiny"}).err, "");
  EXPECT_THAT(asked_, ElementsAre("uid-of-tiny/0"));
}

}  // namespace
}  // namespace mt::client
