// Updates of a living job: which fields may change, and how all others are refused.
#include "common/spec/update.h"

#include <string>

#include <gtest/gtest.h>

#include "common/spec/print.h"
#include "megatrain/v1/job.pb.h"
#include "tests/common/spec/job_text.h"

namespace mt::spec {
namespace {

namespace v1 = megatrain::v1;

std::string Shown(const std::vector<FieldChange>& changes) {
  std::string out;
  for (const FieldChange& change : changes)
    out += fmt::format("{}:{}->{} ", change.path, change.before, change.after);
  return out;
}

TEST(Update, LiveFieldsAndLabels) {
  v1::JobSpec job = Load({"labels={a: x, b: y}", "checkpoint.every=90s"}).job;
  v1::JobSpec changes;
  changes.set_priority(5);
  changes.mutable_labels()->insert({"a", "z"});
  changes.mutable_labels()->insert({"c", "new"});
  changes.mutable_training()->set_log_every(50);
  changes.mutable_checkpoint()->set_keep_last(7);
  changes.mutable_checkpoint()->set_keep_every(500);
  changes.mutable_checkpoint()->set_every_iters(20);
  changes.mutable_resilience()->set_deadline(7'200'000);
  std::vector<FieldChange> seen;
  const Update update{
      .changes = changes, .clear = {"checkpoint.every"}, .remove_labels = {"b", "nobody"}};
  ASSERT_EQ(FormatFaults(ApplyUpdate({}, update, &job, &seen)), "");
  EXPECT_EQ(Shown(seen),
            "checkpoint.every:90s-> checkpoint.every_iters:0->20 checkpoint.keep_every:0->500 "
            "checkpoint.keep_last:3->7 "
            "labels.a:x->z labels.b:y-> labels.c:->new priority:0->5 "
            "resilience.deadline:->2h training.log_every:1->50 ");
  EXPECT_EQ(job.training().log_every(), 50);
  EXPECT_FALSE(job.checkpoint().has_every());
  v1::JobSpec again = job;
  EXPECT_EQ(FormatFaults(CompleteJob({}, &again)), "");
  EXPECT_EQ(Digest(again), Digest(job));
}

TEST(Update, DifferencesOfJobsLeaveOutWhatASubmissionHasForItself) {
  const v1::JobSpec before = LoadOnCpu({"checkpoint.every_iters=5"}).job;
  const v1::JobSpec same =
      LoadOnCpu({"name=other", "namespace=b", "labels={a: x}", "checkpoint.every_iters=5",
                 "checkpoint.load=old", "checkpoint.load_kind=weights",
                 "checkpoint.directory=there", "training.exit_at_iter=9"})
          .job;
  EXPECT_EQ(Shown(DifferencesOfJobs(before, same)), "");
  const v1::JobSpec other = LoadOnCpu({"data.path=[0.3, a, 0.7, b]", "optimizer.lr=3e-4",
                                       "training.train_iters=200", "checkpoint.every=90s"})
                                .job;
  const std::vector<FieldChange> changes = DifferencesOfJobs(before, other);
  EXPECT_EQ(Shown(changes),
            "checkpoint.every:->90s checkpoint.every_iters:5->0 data.path:[text_document]->[0.3 a, "
            "0.7 b] optimizer.lr:0.001->0.0003 training.train_iters:100->200 ");
  EXPECT_EQ(ChangeText(changes[0]), "checkpoint.every nothing -> 90s");
  EXPECT_EQ(ChangeText(changes[3]), "optimizer.lr 0.001 -> 0.0003");
}

TEST(Update, AFieldThatKeepsItsValueIsNoChange) {
  v1::JobSpec job = Load().job;
  const v1::JobSpec same = job;
  std::vector<FieldChange> seen;
  EXPECT_EQ(FormatFaults(
                ApplyUpdate({}, {.changes = same, .clear = {}, .remove_labels = {}}, &job, &seen)),
            "");
  EXPECT_TRUE(seen.empty());
}

// A field that came later is no change of an update that does not name it.
TEST(Update, AJobOfAnEarlierVersionHasNoOtherChanges) {
  v1::JobSpec job = Load().job;
  job.mutable_training()->mutable_eval()->clear_windows();
  v1::JobSpec changes;
  changes.mutable_training()->set_log_every(50);
  std::vector<FieldChange> seen;
  const Update update{.changes = changes, .clear = {}, .remove_labels = {}};
  ASSERT_EQ(FormatFaults(ApplyUpdate({}, update, &job, &seen)), "");
  EXPECT_EQ(Shown(seen), "training.log_every:1->50 ");
  EXPECT_EQ(job.training().eval().windows(), v1::Training::Eval::WINDOWS_ROLLING);
}

TEST(Update, RefusesTheRestFieldByFieldAndChangesNothing) {
  v1::JobSpec job = Load().job;
  const std::string before = Digest(job);
  v1::JobSpec changes;
  changes.set_priority(3);
  changes.mutable_training()->set_train_iters(job.training().train_iters() + 1);
  changes.mutable_training()->set_seed(7);
  changes.mutable_parallel()->set_data(64);
  changes.mutable_optimizer()->set_lr(0.5);
  std::vector<FieldChange> seen;
  const Update update{
      .changes = changes, .clear = {"optimizer.lr", "no.field"}, .remove_labels = {}};
  EXPECT_EQ(FormatFaults(ApplyUpdate({}, update, &job, &seen)),
            "parallel.data: cannot change while the job lives: end it with a save, and submit a "
            "job that has it "
            "over the same checkpoint.directory\n"
            "training.train_iters: changing the run length is not supported yet\n"
            "training.seed: cannot change after the start\n"
            "optimizer.lr: cannot change after the start\n"
            "optimizer.lr: cannot change after the start\n"
            "no.field: no such field");
  EXPECT_TRUE(seen.empty());
  EXPECT_EQ(Digest(job), before);
}

TEST(Update, TheResultIsCheckedAsAWhole) {
  v1::JobSpec job = Load({"checkpoint.directory=none"}).job;
  v1::JobSpec changes;
  changes.set_priority(2000);
  changes.mutable_checkpoint()->set_every_iters(10);
  std::vector<FieldChange> seen;
  EXPECT_EQ(FormatFaults(ApplyUpdate({}, {.changes = changes, .clear = {}, .remove_labels = {}},
                                     &job, &seen)),
            "priority: must be at most 1000, is 2000\n"
            "checkpoint.directory: is none, but every_iters or every asks for saves; give a "
            "directory");
  EXPECT_EQ(job.priority(), 0);
}

}  // namespace
}  // namespace mt::spec
