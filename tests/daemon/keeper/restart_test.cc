// The run that a user begins on purpose (submit --restart, resume --fresh): one token, made once
// and told with every placement.
#include <set>

#include "daemon/keeper/job_bases.h"
#include "tests/daemon/keeper/bases_rig.h"

namespace mt::daemon {
namespace {

using std::chrono::seconds;

class RestartTest : public BasesTest {
 protected:
  StatusOr<v1::SubmitResponse> SubmitRestart(const v1::JobSpec& spec, bool restart = true,
                                             const std::string& id = base::NewUid()) {
    v1::SubmitRequest request;
    *request.mutable_spec() = spec;
    request.set_request_id(id);
    request.set_restart(restart);
    v1::SubmitResponse response;
    const Status status = core_->api().jobs().Submit(request, "tester", &response);
    Settle();
    if (!status.ok()) return status;
    return response;
  }
  std::string TokenOf(const std::string& uid) { return core_->ledger().FindJob(uid)->restart(); }
  // Its ranks hold their slots no longer; with `save` they have saved.
  void Release(Worker& worker, const std::string& uid, bool save) {
    v1::PauseRequest request;
    request.set_mode(v1::PauseRequest::RELEASE);
    request.set_discard(!save);
    ASSERT_TRUE(Do(&VerbsApi::Pause, request, uid).ok());
    Gone(worker, Get(uid));
    ASSERT_EQ(Get(uid).state(), v1::PAUSED_RELEASED);
  }
  void SubmitAndSave(Worker& worker, const std::string& name, int64_t step) {
    const v1::Job job = StartRunning(worker, name, 1, "checkpoint: {directory: shared}\n");
    Save(worker, job, step);
    Report(worker, EndedMessage(job, 10, true));
    Gone(worker, job);
  }
};

TEST_F(RestartTest, APlainSubmissionHasNone) {
  Worker worker = NewWorker("a", 1);
  StartRunning(worker, "job", 1);
  EXPECT_EQ(LastAssign(worker).restart(), "");
  EXPECT_EQ(Events("Submitted")[0].message(), "job");
}

TEST_F(RestartTest, EveryPlacementOfASubmissionHasItsToken) {
  Worker worker = NewWorker("a", 1);
  SubmitAndSave(worker, "before", 20);
  const auto response = SubmitRestart(TinyJob("job", 1, "checkpoint: {directory: shared}\n"));
  ASSERT_TRUE(response.ok()) << response.status();
  const std::string uid = response->job().uid();
  const std::string token = LastAssign(worker).restart();
  EXPECT_EQ(token.size(), 36U);
  EXPECT_FALSE(LastAssign(worker).has_base()) << "no earlier job's";
  EXPECT_FALSE(LastAssign(worker).spec().checkpoint().fresh());
  EXPECT_EQ(Events("Submitted")[1].message(), "job: begins another run");
  // An agent refuses, the coordinator starts again, ranks leave without a save.
  Accept(worker, Get(uid), /*accepted=*/false);
  StartCore();
  Connect(&worker, 1);
  PassBeating(seconds(8), {&worker});
  EXPECT_EQ(LastAssign(worker).restart(), token);
  Start(worker, uid, 0);
  Release(worker, uid, /*save=*/false);
  ASSERT_TRUE(Resume(uid).ok());
  EXPECT_EQ(LastAssign(worker).epoch(), Get(uid).epoch());
  EXPECT_EQ(LastAssign(worker).restart(), token);
  EXPECT_FALSE(LastAssign(worker).has_base());
  // It has saved: from here on that is the base, of the same run.
  Start(worker, uid, 0);
  Save(worker, Get(uid), 5);
  Release(worker, uid, /*save=*/true);
  ASSERT_TRUE(Resume(uid).ok());
  EXPECT_EQ(LastAssign(worker).restart(), token);
  EXPECT_EQ(LastAssign(worker).base().step(), 5);
  EXPECT_EQ(LastAssign(worker).base().job_uid(), uid);
}

TEST_F(RestartTest, ARequestHasOneToken) {
  Worker worker = NewWorker("a", 2);
  const auto first = SubmitRestart(TinyJob("job", 1), true, "id-1");
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string token = TokenOf(first->job().uid());
  StartCore();
  Connect(&worker, 2);
  const auto again = SubmitRestart(TinyJob("job", 1), true, "id-1");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->existed());
  EXPECT_EQ(again->job().uid(), first->job().uid());
  EXPECT_EQ(TokenOf(first->job().uid()), token);
  const auto without = SubmitRestart(TinyJob("job", 1), false, "id-1");
  EXPECT_EQ(rpc::ReasonOf(without.status()), "REQUEST_ID_REUSED") << "that is another request";
  const auto other = SubmitRestart(TinyJob("other", 1), true, "id-2");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE(TokenOf(other->job().uid()), token);
}

TEST_F(RestartTest, AJobThatSavesNothingIsRefused) {
  const auto refused =
      SubmitRestart(TinyJob("job", 1, "checkpoint: {directory: none}\n"), true, "id-1");
  EXPECT_EQ(rpc::ReasonOf(refused.status()), "NO_CHECKPOINTS") << refused.status();
  EXPECT_TRUE(core_->ledger().Jobs().empty());
  EXPECT_TRUE(SubmitRestart(TinyJob("job", 1), true, "id-1").ok()) << "nothing was remembered";
}

TEST_F(RestartTest, AFreshResumeMakesAnotherOneUntilTheNext) {
  Worker worker = NewWorker("a", 1);
  const auto response = SubmitRestart(TinyJob("job", 1));
  ASSERT_TRUE(response.ok()) << response.status();
  const std::string uid = response->job().uid();
  std::vector<std::string> tokens = {LastAssign(worker).restart()};
  Start(worker, uid, 0);
  Save(worker, Get(uid), 20);
  for (int i = 0; i < 2; ++i) {
    Release(worker, uid, /*save=*/true);
    v1::ResumeRequest fresh;
    fresh.set_fresh(true);
    const std::string id = base::NewUid();
    ASSERT_TRUE(Do(&VerbsApi::Resume, fresh, uid, id).ok());
    tokens.push_back(LastAssign(worker).restart());
    ASSERT_TRUE(Do(&VerbsApi::Resume, fresh, uid, id).ok());
    EXPECT_EQ(TokenOf(uid), tokens.back()) << "the same request once more";
    EXPECT_TRUE(LastAssign(worker).spec().checkpoint().fresh());
    EXPECT_FALSE(LastAssign(worker).has_base());
    Start(worker, uid, 0);
  }
  EXPECT_EQ(std::set<std::string>(tokens.begin(), tokens.end()).size(), 3U);
  // Nothing was saved: the same run begins again, at step 0.
  Release(worker, uid, /*save=*/false);
  ASSERT_TRUE(Resume(uid).ok());
  EXPECT_EQ(LastAssign(worker).restart(), tokens.back());
  EXPECT_TRUE(LastAssign(worker).spec().checkpoint().fresh());
  EXPECT_FALSE(LastAssign(worker).has_base());
  Start(worker, uid, 0);
  Save(worker, Get(uid), 5);
  Release(worker, uid, /*save=*/true);
  ASSERT_TRUE(Resume(uid).ok());
  EXPECT_EQ(LastAssign(worker).restart(), tokens.back());
  EXPECT_FALSE(LastAssign(worker).spec().checkpoint().fresh());
  EXPECT_EQ(LastAssign(worker).base().step(), 5);
}

TEST_F(RestartTest, AnOlderCheckpointIsNoOtherRun) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = Released(worker, {10, 20});
  ASSERT_TRUE(ResumeFrom(job.uid(), /*allow_older=*/true, false).ok());
  EXPECT_EQ(LastAssign(worker).restart(), "");
  EXPECT_EQ(LastAssign(worker).base().step(), 20);
}

TEST_F(RestartTest, AWordThatWasNotCarriedOutIsTakenBackByAnother) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = Released(worker, {10, 20});
  const v1::Job other = StartRunning(worker, "other", 1);  // has the slot
  ASSERT_TRUE(ResumeFrom(job.uid(), false, /*fresh=*/true).ok());
  const std::string token = TokenOf(job.uid());
  EXPECT_NE(token, "");
  // A pause does not take it back.
  ASSERT_TRUE(Pause(job.uid(), v1::PauseRequest::RELEASE).ok());
  ASSERT_TRUE(Resume(job.uid()).ok());
  EXPECT_EQ(TokenOf(job.uid()), token);
  ASSERT_TRUE(ResumeFrom(job.uid(), /*allow_older=*/true, false).ok());
  EXPECT_EQ(TokenOf(job.uid()), "");
  ASSERT_TRUE(Kill(other.uid()).ok());
  Gone(worker, Get(other.uid()));
  ASSERT_EQ(Get(job.uid()).state(), v1::ADMITTED);
  EXPECT_EQ(LastAssign(worker).restart(), "");
  EXPECT_FALSE(LastAssign(worker).spec().checkpoint().fresh());
  EXPECT_EQ(LastAssign(worker).base().step(), 20);
}

TEST_F(RestartTest, ABegunRunStaysWhenSomethingOlderIsAccepted) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = Released(worker, {20});
  ASSERT_TRUE(ResumeFrom(job.uid(), false, /*fresh=*/true).ok());
  const std::string token = TokenOf(job.uid());
  Start(worker, job.uid(), 0);
  Release(worker, job.uid(), /*save=*/false);
  ASSERT_TRUE(ResumeFrom(job.uid(), /*allow_older=*/true, false).ok());
  EXPECT_EQ(LastAssign(worker).restart(), token);
  EXPECT_FALSE(LastAssign(worker).has_base()) << "step 20 is another run's";
}

TEST_F(RestartTest, WhatAnotherRunHasSavedIsNotSavedOfThisOne) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = Released(worker, {20});
  ASSERT_TRUE(ResumeFrom(job.uid(), false, /*fresh=*/true).ok());
  Start(worker, job.uid(), 0);
  Report(worker, StepsMessage(Get(job.uid()), 1, 7));
  const auto pause = Pause(job.uid(), v1::PauseRequest::RELEASE);
  ASSERT_TRUE(pause.ok()) << pause.status();
  Gone(worker, Get(job.uid()));
  EXPECT_EQ(Op(pause->name()).error().reason(), "SAVE_FAILED") << "steps 1 to 7";
  EXPECT_NE(Op(pause->name()).error().message().find("to step 7, saved is nothing"),
            std::string::npos);
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "CheckpointStale");
}

TEST_F(RestartTest, ARunThatHasNotBegunHasNothingToSave) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = StartRunning(worker, "job", 1);
  Report(worker, StepsMessage(job, 1, 20));
  Save(worker, job, 20);
  Release(worker, job.uid(), /*save=*/true);
  ASSERT_TRUE(ResumeFrom(job.uid(), false, /*fresh=*/true).ok());
  Accept(worker, Get(job.uid()));
  const auto pause = Pause(job.uid(), v1::PauseRequest::RELEASE);
  ASSERT_TRUE(pause.ok()) << pause.status();
  Gone(worker, Get(job.uid()));
  EXPECT_EQ(Get(job.uid()).state(), v1::PAUSED_RELEASED);
  EXPECT_FALSE(Op(pause->name()).has_error()) << Op(pause->name()).error().message();
}

TEST_F(RestartTest, AFreshResumeOfAnEarlierVersionGetsItsToken) {
  Worker worker = NewWorker("a", 1);
  const v1::Job job = Released(worker, {20});
  v1::StoredJob* stored = core_->ledger().FindJob(job.uid());
  stored->set_fresh(true);
  core_->ledger().MarkJob(*stored, Change::kState);
  Settle();
  StartCore();
  Connect(&worker, 1);
  ASSERT_TRUE(Resume(job.uid()).ok());
  const std::string token = LastAssign(worker).restart();
  EXPECT_EQ(token.size(), 36U);
  EXPECT_TRUE(LastAssign(worker).spec().checkpoint().fresh());
  EXPECT_FALSE(LastAssign(worker).has_base());
  Accept(worker, Get(job.uid()), /*accepted=*/false);
  PassBeating(seconds(8), {&worker});
  EXPECT_EQ(LastAssign(worker).restart(), token);
}

TEST_F(RestartTest, RanksFromBeforeTheTokenAreNotOfItsRun) {
  v1::StoredJob stored;
  stored.mutable_job()->set_epoch(7);
  stored.set_fresh(true);
  MakeRestart(&stored);
  const std::string token = stored.restart();
  DropRestartOf(8, &stored);
  EXPECT_EQ(stored.restart(), token);
  EXPECT_TRUE(stored.fresh());
  DropRestartOf(7, &stored);
  EXPECT_EQ(stored.restart(), "");
  EXPECT_FALSE(stored.fresh());
}

}  // namespace
}  // namespace mt::daemon
