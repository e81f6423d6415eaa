// What is said when a job is submitted, how benchmarks are named, and the curve of a run that was
// submitted again.
#include <cstdio>
#include <fstream>
#include <string>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "client/commands/attempts.h"
#include "client/commands/submit_notes.h"
#include "tests/client/fake_coordinator.h"

namespace mt::client {
namespace {

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

// Three attempts of one run, and an earlier run of the same name in another directory.
class AttemptsTest : public testing::Test {
 protected:
  static v1::Job Attempt(const char* uid, int64_t created, int64_t resumed, const char* path) {
    v1::Job job = MakeJob("tiny", v1::SUCCEEDED);
    job.set_uid(uid);
    job.set_namespace_("default");
    job.set_created_us(created);
    job.set_resumed_from_step(resumed);
    job.set_checkpoint_path(path);
    return job;
  }
  void SetUp() override {
    server_.state().jobs = {Attempt(kThird, 400, 6, "/c/tiny"), Attempt(kSecond, 300, 3, "/c/tiny"),
                            Attempt(kFirst, 200, 0, "/c/tiny"), Attempt(kOther, 250, 0, "/c/x"),
                            Attempt(kCold, 100, 0, "/c/tiny")};
    server_.state().answer_history = [this](const v1::QueryHistoryRequest& request) {
      const std::string uid = request.job().uid();
      asked_.push_back(uid);
      v1::History out;
      auto* loss = out.add_columns();
      loss->set_name("loss");
      const int first = uid == kThird ? 7 : uid == kSecond ? 4 : 1;
      for (int step = first; step < first + 5; ++step) {
        out.add_steps(step);
        loss->add_last(uid == kThird ? 3 : uid == kSecond ? 2 : 1);
        out.add_evals()->set_step(step);
      }
      return out;
    };
  }
  static constexpr char kThird[] = "33333333-d9cb-469f-a165-70867728950e";
  static constexpr char kSecond[] = "22222222-d9cb-469f-a165-70867728950e";
  static constexpr char kFirst[] = "11111111-d9cb-469f-a165-70867728950e";
  static constexpr char kOther[] = "44444444-d9cb-469f-a165-70867728950e";
  static constexpr char kCold[] = "00000000-d9cb-469f-a165-70867728950e";
  FakeCoordinator server_;
  std::vector<std::string> asked_;
};

TEST_F(AttemptsTest, AreOneCurveJoinedWhereTheyWentOn) {
  GlobalOptions options;
  options.coordinator = server_.address();
  const auto api = ConnectApi(options);
  ASSERT_TRUE(api.ok());
  const auto attempts = AttemptsOf(**api, "tiny", options);
  ASSERT_TRUE(attempts.ok()) << attempts.status();
  ASSERT_EQ(attempts->size(), 3U);
  EXPECT_EQ((*attempts)[0].uid(), kFirst);
  EXPECT_EQ((*attempts)[2].uid(), kThird);
  const auto run = FetchRun(**api, *attempts, {.job = "tiny"}, options);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_THAT(std::vector<int64_t>(run->steps().begin(), run->steps().end()),
              testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(run->columns(0).last(), testing::ElementsAre(1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3));
  EXPECT_EQ(run->evals_size(), 11);
  // An earlier attempt by its uid is the run up to there.
  EXPECT_EQ(AttemptsOf(**api, kSecond, options)->size(), 2U);
}

TEST_F(AttemptsTest, OneIsPlottedAlone) {
  const Ran second = Mtctl(&server_, {"plot", "tiny", "--attempt", "2", "--ascii"});
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(asked_, std::vector<std::string>{kSecond});
  const Ran none = Mtctl(&server_, {"plot", "tiny", "--attempt", "4"});
  EXPECT_EQ(none.code, kExitInvalidInput);
  EXPECT_THAT(none.err, HasSubstr("job tiny has 3 attempts"));
  asked_.clear();
  EXPECT_EQ(Mtctl(&server_, {"plot", "tiny", "--ascii"}).code, 0);
  EXPECT_EQ(asked_.size(), 3U);
}

}  // namespace
}  // namespace mt::client
