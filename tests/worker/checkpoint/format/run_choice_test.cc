// Which run a start is of: what begins one, what goes on with one, copies of directories, and
// directories from before runs had ids.
#include "worker/checkpoint/format/run_choice.h"

#include <filesystem>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/writer.h"

namespace mt::checkpoint {
namespace {

using testing::HasSubstr;

class RunChoiceTest : public testing::Test {
 protected:
  RunChoiceTest() { std::filesystem::create_directories(directory_); }

  // A checkpoint of a program with ids, or, where `run` is empty, of one before them. `parent`:
  // {-1, -1}: none.
  void Save(const CheckpointId& id, const std::string& run, const CheckpointId& parent = {-1, -1},
            const std::string& spec = "{}") const {
    const double value = 1;
    SaveArgs args;
    args.directory = directory_;
    args.manifest.step = id.step;
    args.manifest.epoch = id.epoch;
    args.manifest.run = run;
    args.manifest.job_uid = "job-of-then";
    args.manifest.parent_step = parent.step;
    args.manifest.parent_epoch = parent.epoch;
    args.manifest.spec_json = spec;
    args.slices = {{.key = "weights/w",
                    .dtype = kernels::DType::kF64,
                    .global_shape = {1},
                    .offset = {0},
                    .shape = {1},
                    .data = &value}};
    const auto saved = SaveCheckpoint(args);
    ASSERT_TRUE(saved.ok()) << saved.status();
  }
  RunQuery Query(int64_t epoch, const RunBeginning& beginning = {}) const {
    return {.directory = directory_,
            .place = {.root_id = "root-a", .directory = "ckpt", .path = directory_},
            .epoch = epoch,
            .beginning = beginning,
            .job_uid = "job",
            .job_name = "tiny"};
  }
  // The checkpoint that a start with this choice goes on from, as its manifest tells.
  std::optional<RunSource> SourceOf(const RunChoice& choice) const {
    if (choice.checkpoints.empty()) return std::nullopt;
    const CheckpointId& id = choice.checkpoints.front();
    const auto manifest = ReadManifest(directory_, id);
    return RunSource{.run = manifest.ok() ? manifest->run : "", .id = id, .digest = "xxh3:aa"};
  }
  // A start as a whole: the list is written, as a trainer does. `loaded`: what the beginning names.
  RunChoice Start(const RunQuery& query, const std::optional<RunSource>& loaded = {}) const {
    const auto choice = ChooseRun(query);
    EXPECT_TRUE(choice.ok()) << choice.status();
    RunChoice out = *choice;
    SetSource(loaded ? loaded : SourceOf(out), true, &out);
    EXPECT_TRUE(WriteRuns(directory_, out.all).ok());
    EXPECT_TRUE(base::IsUid(out.run.id)) << out.run.id;
    EXPECT_EQ(RunOfEpoch(out.all, query.epoch)->id, out.run.id);
    return out;
  }
  // The step that a start with this choice goes on from; -1: it begins as its beginning says.
  static int64_t StepOf(const RunChoice& choice) {
    return choice.checkpoints.empty() ? -1 : choice.checkpoints.front().step;
  }
  std::string OfEpoch(int64_t epoch) const {
    const RunList list = ReadRuns(directory_).value();
    const RunRecord* const run = RunOfEpoch(list, epoch);
    return run == nullptr ? "" : run->id;
  }

  TempDir dir_;
  const std::string directory_ = dir_.File("ckpt");
};

TEST_F(RunChoiceTest, AnEmptyDirectoryBeginsARunAndItsCheckpointGoesOnWithIt) {
  const RunChoice first = Start(Query(1));
  EXPECT_TRUE(first.begins);
  EXPECT_EQ(first.run.parent, "");
  EXPECT_EQ(first.run.from, std::nullopt);
  EXPECT_EQ(first.run.job_uid, "job");
  EXPECT_EQ(first.run.job_name, "tiny");
  EXPECT_EQ(first.run.place.directory, "ckpt");
  EXPECT_EQ(first.run.began.back(), 'Z');
  Save({10, 1}, first.run.id);
  const RunChoice second = Start(Query(2));
  EXPECT_FALSE(second.begins);
  EXPECT_EQ(second.run.id, first.run.id);
  EXPECT_EQ(second.run.epochs, (std::vector<std::pair<int64_t, int64_t>>{{1, 2}}));
  EXPECT_EQ(second.all.runs.size(), 1U);
}

TEST_F(RunChoiceTest, WhatAJobNamesBeginsARunOnce) {
  const std::string first = Start(Query(1)).run.id;
  Save({10, 1}, first);
  const RunSource source{.run = first, .id = {10, 1}, .digest = "xxh3:aa"};
  std::set<std::string> ids = {first};
  int64_t epoch = 1;
  const auto begins = [&](const RunBeginning& beginning, const std::optional<RunSource>& loaded) {
    const RunChoice choice = Start(Query(++epoch, beginning), loaded);
    EXPECT_TRUE(choice.begins) << TextOf(beginning);
    EXPECT_TRUE(ids.insert(choice.run.id).second) << TextOf(beginning);
    EXPECT_EQ(choice.run.beginning, beginning);
    EXPECT_EQ(choice.run.parent, "") << "no copy";
    EXPECT_EQ(choice.run.from, loaded);
    EXPECT_EQ(choice.of, "") << "what is loaded is what it names";
    // Submitted again before it has saved, it begins again, and after that it goes on.
    const RunChoice again = Start(Query(++epoch, beginning), loaded);
    EXPECT_FALSE(again.begins) << TextOf(beginning);
    EXPECT_EQ(again.run.id, choice.run.id);
    EXPECT_EQ(again.run.from, loaded);
    EXPECT_EQ(StepOf(again), -1);
    Save({3, epoch}, choice.run.id);
    const RunChoice on = Start(Query(++epoch, beginning));
    EXPECT_EQ(on.run.id, choice.run.id);
    EXPECT_EQ(on.checkpoints, (std::vector<CheckpointId>{{3, epoch - 1}}));
    EXPECT_EQ(on.run.from, loaded) << "what it began from";
  };
  begins({.fresh = true}, std::nullopt);
  begins({.load = "10"}, source);
  begins({.load_tag = "best"}, source);
  begins({.load = "ckpt", .load_kind = "weights"}, source);
  EXPECT_EQ(ReadRuns(directory_)->runs.size(), 5U);
  EXPECT_EQ(OfEpoch(1), first) << "the others stay";
  // Each goes on with its own, in whatever order they come; a job that names none with the newest.
  EXPECT_EQ(Start(Query(++epoch, {.fresh = true})).run.id, OfEpoch(2));
  EXPECT_EQ(Start(Query(++epoch)).run.id, OfEpoch(2));
  EXPECT_EQ(Start(Query(++epoch, {.load = "10"})).run.id, OfEpoch(5));
  EXPECT_EQ(Start(Query(++epoch)).run.id, OfEpoch(5));
}

TEST_F(RunChoiceTest, AHigherStepOfAnotherRunIsNotTaken) {
  const std::string first = Start(Query(1)).run.id;
  Save({300, 1}, first);
  const std::string fresh = Start(Query(2, {.fresh = true})).run.id;
  Save({20, 2}, fresh);
  const RunChoice on = Start(Query(3));
  EXPECT_EQ(on.run.id, fresh);
  EXPECT_EQ(on.checkpoints, (std::vector<CheckpointId>{{20, 2}}));
}

// The request travels with every start of its job.
TEST_F(RunChoiceTest, ARestartBeginsOneRunHoweverOftenItComes) {
  const std::string first = Start(Query(1)).run.id;
  Save({10, 1}, first);
  RunQuery query = Query(2);
  query.restart = "token-1";
  const RunChoice begun = Start(query);
  EXPECT_TRUE(begun.begins);
  EXPECT_NE(begun.run.id, first);
  EXPECT_EQ(StepOf(begun), -1);
  EXPECT_EQ(begun.run.restart, "token-1");
  query.epoch = 3;
  const RunChoice again = Start(query);
  EXPECT_FALSE(again.begins);
  EXPECT_EQ(again.run.id, begun.run.id);
  EXPECT_EQ(StepOf(again), -1) << "it has saved nothing";
  Save({4, 3}, begun.run.id);
  EXPECT_EQ(StepOf(Start(Query(4))), 4) << "it is the newest run now";
  query.epoch = 5;
  query.restart = "token-2";
  const RunChoice third = Start(query);
  EXPECT_TRUE(third.begins);
  query.epoch = 6;
  query.restart = "token-1";
  EXPECT_EQ(StepOf(Start(query)), 4) << "the first request means its own run";
  query.epoch = 7;
  query.beginning = {.load = "10"};
  query.restart = "token-3";
  const RunSource source{.run = first, .id = {10, 1}, .digest = "xxh3:aa"};
  Start(query, source);
  EXPECT_EQ(Start(Query(8, {.load = "10"})).run.restart, "token-3");
}

TEST_F(RunChoiceTest, ABaseSaysTheRunWhicheverIsTheNewest) {
  const std::string first = Start(Query(1)).run.id;
  Save({10, 1}, first);
  Start(Query(2, {.fresh = true}));
  RunQuery query = Query(3, {.fresh = true});
  query.bound_run = first;
  query.bound = RunSource{.run = first, .id = {10, 1}, .digest = "xxh3:aa"};
  const RunChoice choice = Start(query, query.bound);
  EXPECT_FALSE(choice.begins);
  EXPECT_EQ(choice.run.id, first);
  EXPECT_EQ(choice.run.from, std::nullopt) << "its own checkpoint is no source";
  // A base from before runs had ids tells by its checkpoint.
  query.epoch = 4;
  query.bound_run.clear();
  EXPECT_EQ(Start(query, query.bound).run.id, first);
}

TEST_F(RunChoiceTest, WhatAnotherDirectoryHasBeginsARunThatNamesIt) {
  const std::string theirs = base::NewUid();
  RunChoice choice = ChooseRun(Query(1, {.load = "other/step-00000030-e0002"})).value();
  const RunSource source{.run = theirs, .id = {30, 2}, .digest = "xxh3:bb"};
  EXPECT_EQ(SetSource(source, false, &choice), theirs);
  EXPECT_TRUE(choice.begins);
  EXPECT_NE(choice.run.id, theirs);
  EXPECT_EQ(choice.run.from->run, theirs);
  EXPECT_EQ(choice.run.parent, "");
  EXPECT_EQ(FindRun(choice.all, choice.run.id)->from, source);
}

TEST_F(RunChoiceTest, WithoutADirectoryEachStartIsARun) {
  RunQuery query = Query(1);
  query.directory.clear();
  const auto first = ChooseRun(query), second = ChooseRun(query);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_TRUE(first->begins && second->begins);
  EXPECT_NE(first->run.id, second->run.id);
}

TEST_F(RunChoiceTest, ACopiedDirectoryIsARunOfItsOwnAndSaysSoOnce) {
  const std::string original = Start(Query(1)).run.id;
  Save({10, 1}, original);
  RunQuery elsewhere = Query(2);
  elsewhere.place.directory = "copy";
  const RunChoice copy = Start(elsewhere);
  EXPECT_TRUE(copy.begins);
  EXPECT_NE(copy.run.id, original);
  EXPECT_EQ(copy.run.parent, original);
  EXPECT_EQ(copy.of, original);
  EXPECT_EQ(copy.run.from->id, (CheckpointId{10, 1}));
  // It ends before it has saved: the next start finds the same copy.
  elsewhere.epoch = 3;
  const RunChoice again = Start(elsewhere);
  EXPECT_FALSE(again.begins);
  EXPECT_EQ(again.run.id, copy.run.id);
  EXPECT_EQ(again.checkpoints, copy.checkpoints);
  Save({20, 3}, copy.run.id);
  RunQuery later = Query(4);
  later.place.directory = "copy";
  const RunChoice on = Start(later);
  EXPECT_FALSE(on.begins);
  EXPECT_EQ(on.run.id, copy.run.id);
  EXPECT_EQ(on.all.runs.size(), 2U);
}

// `mtctl checkpoint copy` brings a checkpoint into a directory whose list does not have its run.
TEST_F(RunChoiceTest, ACopiedCheckpointBesideOthersIsARunOfItsOwn) {
  const std::string mine = Start(Query(1)).run.id;
  Save({10, 1}, mine);
  const std::string theirs = base::NewUid();
  Save({50, 2}, theirs);
  const RunChoice choice = Start(Query(3));
  EXPECT_TRUE(choice.begins);
  EXPECT_EQ(choice.run.parent, theirs);
  EXPECT_EQ(OfEpoch(1), mine);
}

TEST_F(RunChoiceTest, AnotherDirectorysListIsNamedOnceAndKept) {
  const std::string mine = Start(Query(1)).run.id;
  Save({10, 1}, mine);
  RunRecord theirs = ReadRuns(directory_)->runs.front();
  theirs.id = base::NewUid();
  theirs.place = {.root_id = "root-a", .directory = "other", .path = "/ckpts/other"};
  ASSERT_TRUE(WriteRuns(directory_, {.runs = {theirs}}).ok());
  RunQuery query = Query(2);
  query.fence_run = mine;
  const RunChoice choice = Start(query);
  EXPECT_EQ(choice.list_of, "/ckpts/other");
  EXPECT_EQ(choice.run.id, mine);
  EXPECT_EQ(choice.all.runs.size(), 2U);
  query.epoch = 3;
  EXPECT_EQ(Start(query).list_of, "");
  // A copied directory has the list of its checkpoints.
  RunQuery copy = Query(4);
  copy.place = {.root_id = "root-a", .directory = "copy", .path = "/ckpts/copy"};
  EXPECT_EQ(Start(copy).list_of, "");
}

// One checkpoint was copied here alone; the run that began with it is copied with its directory.
TEST_F(RunChoiceTest, AListIsOfTheCheckpointsWithWhichItsRunsBegan) {
  const std::string theirs = base::NewUid();
  Save({50, 2}, theirs);
  const RunChoice first = Start(Query(3));
  EXPECT_EQ(first.run.parent, theirs);
  RunQuery copy = Query(4);
  copy.place = {.root_id = "root-a", .directory = "copy", .path = "/ckpts/copy"};
  const RunChoice choice = Start(copy);
  EXPECT_EQ(choice.list_of, "");
  EXPECT_TRUE(choice.begins);
  EXPECT_EQ(choice.of, theirs);
  EXPECT_EQ(choice.checkpoints, (std::vector<CheckpointId>{{50, 2}}));
}

// There a run has begun without it, and has saved nothing: the fence tells whose list it is.
TEST_F(RunChoiceTest, AListIsOfTheDirectoryWhoseFenceNamesARunOfIt) {
  Save({50, 2}, base::NewUid());
  const std::string fresh = Start(Query(3, {.fresh = true})).run.id;
  RunQuery copy = Query(4);
  copy.place = {.root_id = "root-a", .directory = "copy", .path = "/ckpts/copy"};
  copy.fence_run = fresh;
  const RunChoice choice = Start(copy);
  EXPECT_EQ(choice.list_of, "");
  EXPECT_TRUE(choice.begins);
  EXPECT_TRUE(choice.run.beginning.fresh) << "as the newest run began";
  EXPECT_TRUE(choice.checkpoints.empty());
}

TEST_F(RunChoiceTest, ALostListIsMadeAnewWhereTheFenceKnowsTheRun) {
  const std::string run = Start(Query(1)).run.id;
  Save({10, 1}, run);
  std::filesystem::remove(directory_ + "/run.json");
  RunQuery query = Query(2);
  query.fence_run = run;
  const RunChoice choice = Start(query);
  EXPECT_FALSE(choice.begins);
  EXPECT_EQ(choice.run.id, run);
  EXPECT_EQ(OfEpoch(1), run);
}

// Nobody removes it while the directory is held: the storage is not whole.
TEST_F(RunChoiceTest, ANewestCheckpointThatIsNotListedAnyMoreBeginsNothing) {
  Start(Query(1));
  RunQuery query = Query(2);
  query.newest = CheckpointId{10, 1};
  const Status status = ChooseRun(query).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(base::Message(status), HasSubstr("not listed any more"));
}

TEST_F(RunChoiceTest, ADamagedListStartsNothing) {
  for (const char* text : {"{", R"({"format": "megatrain-runs", "version": 2})"}) {
    ASSERT_TRUE(base::WriteFileAtomic(directory_ + "/run.json", text).ok());
    const Status status = ChooseRun(Query(1)).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(base::Message(status), HasSubstr("run.json"));
    EXPECT_EQ(base::ReadFile(directory_ + "/run.json").value(), text);
  }
}

// Two runs without ids: epochs 1 and 2, and 3, which began at step 0, with 4.
TEST_F(RunChoiceTest, CheckpointsOfBeforeGetRunsByTheirParents) {
  Save({10, 1}, "");
  Save({20, 2}, "", {10, 1});
  Save({5, 3}, "");
  Save({15, 4}, "", {5, 3});
  const RunChoice choice = Start(Query(5));
  EXPECT_FALSE(choice.begins);
  EXPECT_EQ(choice.all.runs.size(), 2U);
  EXPECT_EQ(OfEpoch(1), OfEpoch(2));
  EXPECT_NE(OfEpoch(2), OfEpoch(3));
  EXPECT_EQ(OfEpoch(3), OfEpoch(4));
  EXPECT_EQ(choice.run.id, OfEpoch(4));
  EXPECT_EQ(choice.of, OfEpoch(4));
  EXPECT_EQ(choice.all.runs[0].job_uid, "job-of-then");
  // Their ids are made once.
  Save({25, 5}, choice.run.id, {15, 4});
  EXPECT_EQ(Start(Query(6)).run.id, choice.run.id);
  EXPECT_EQ(ReadRuns(directory_)->runs.size(), 2U);
}

TEST_F(RunChoiceTest, WhereTheChainIsBrokenTheRestIsOneRun) {
  Save({40, 4}, "", {30, 3});
  Save({60, 6}, "", {50, 5});
  Save({70, 7}, "", {60, 6});
  const RunChoice choice = Start(Query(8));
  EXPECT_EQ(StepOf(choice), 70);
  EXPECT_FALSE(choice.begins);
  EXPECT_EQ(choice.all.runs.size(), 1U);
  EXPECT_EQ(OfEpoch(4), choice.run.id);
  EXPECT_EQ(OfEpoch(6), choice.run.id);
}

// A parent may lie in another directory: there its epoch says nothing here.
TEST_F(RunChoiceTest, AJobOfBeforeThatLoadedByNameBeganARun) {
  const std::string spec = R"({"checkpoint": {"load": "other", "load_kind": "resume"}})";
  Save({10, 1}, "");
  Save({20, 2}, "", {10, 1}, spec);
  const RunChoice choice = Start(Query(3));
  EXPECT_FALSE(choice.begins);
  EXPECT_EQ(choice.all.runs.size(), 2U);
  EXPECT_NE(OfEpoch(1), OfEpoch(2));
  EXPECT_EQ(choice.run.beginning.load, "other");
}

TEST_F(RunChoiceTest, AManifestOfBeforeThatCannotBeReadStaysWithTheRunBefore) {
  Save({10, 1}, "");
  Save({20, 2}, "", {10, 1});
  ASSERT_TRUE(base::WriteFileAtomic(directory_ + "/step-00000020-e0002/manifest.json", "{").ok());
  const RunChoice choice = Start(Query(3));
  EXPECT_EQ(choice.all.runs.size(), 1U);
  EXPECT_EQ(OfEpoch(2), choice.run.id);
}

// An older program has trained in between, and gave its checkpoints no id.
TEST_F(RunChoiceTest, WhatAnOlderProgramAddedIsOfTheRunThatItWentOnWith) {
  const std::string run = Start(Query(1)).run.id;
  Save({10, 1}, run);
  Save({20, 2}, "", {10, 1});
  const RunChoice choice = Start(Query(3));
  EXPECT_FALSE(choice.begins);
  EXPECT_EQ(choice.run.id, run);
  EXPECT_EQ(choice.run.epochs, (std::vector<std::pair<int64_t, int64_t>>{{1, 3}}));
}

TEST_F(RunChoiceTest, OnlyRunsWithoutCheckpointsAreForgotten) {
  const std::string first = Start(Query(1)).run.id;
  Save({10, 1}, first);
  RunList list = ReadRuns(directory_).value();
  for (size_t i = 0; i < kRunsKept + 10; ++i) {
    RunRecord run = list.runs.front();
    run.id = base::NewUid();
    run.epochs = {{static_cast<int64_t>(i) + 2, static_cast<int64_t>(i) + 2}};
    list.runs.push_back(run);
  }
  ASSERT_TRUE(WriteRuns(directory_, list).ok());
  const RunChoice choice = Start(Query(5'000, {.fresh = true}));
  EXPECT_EQ(choice.all.runs.size(), kRunsKept);
  EXPECT_EQ(choice.all.runs.front().id, first);
  EXPECT_EQ(choice.all.runs.back().id, choice.run.id);
  EXPECT_EQ(OfEpoch(2), "") << "the oldest one without a checkpoint";
}

}  // namespace
}  // namespace mt::checkpoint
