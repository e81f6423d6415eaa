// Readers that a client holds: they live while it calls, by the clock, over restarts, and no other
// job is touched.
#include "daemon/api/reader_leases.h"

#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

using std::chrono::seconds;

v1::JobSpec HeldReaderJob(const std::string& name) {
  v1::JobSpec spec;
  const auto faults = spec::ParseJob("name: " + name + R"(
kind: eval
read: {checkpoint: default/demo}
eval: {file: tasks.yaml}
placement: {device: cpu}
)",
                                     {}, &spec);
  EXPECT_TRUE(faults.empty()) << spec::FormatFaults(faults);
  return spec;
}

class ReaderLeasesTest : public CoreTest {
 protected:
  StatusOr<v1::SubmitResponse> TrySubmitHeld(const v1::JobSpec& spec, bool held,
                                             const std::string& id = base::NewUid()) {
    v1::SubmitRequest request;
    *request.mutable_spec() = spec;
    request.set_request_id(id);
    request.set_held(held);
    v1::SubmitResponse response;
    const Status status = core_->api().jobs().Submit(request, "tester", &response);
    Settle();
    if (!status.ok()) return status;
    return response;
  }
  v1::Job SubmitHeld(const std::string& name, bool held = true) {
    const auto response = TrySubmitHeld(HeldReaderJob(name), held);
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? Get(response->job().uid()) : v1::Job();
  }
  StatusOr<v1::HoldOutputResponse> Hold(const std::string& uid) {
    v1::HoldOutputRequest request;
    request.mutable_job()->set_uid(uid);
    v1::HoldOutputResponse response;
    const Status status = core_->api().reader_leases().Hold(request, &response);
    if (!status.ok()) return status;
    return response;
  }
  bool IsHeldStill(const std::string& uid) {
    const auto response = Hold(uid);
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() && response->held() && response->state() != v1::CANCELLED;
  }
};

TEST_F(ReaderLeasesTest, LivesWhileItsClientCalls) {
  const v1::Job job = SubmitHeld("look");
  for (int i = 0; i < 4; ++i) {
    Pass(seconds(9));
    EXPECT_TRUE(IsHeldStill(job.uid())) << i;
  }
  Pass(seconds(10));
  EXPECT_EQ(Get(job.uid()).state(), v1::QUEUED) << "not longer than the limit";
  Pass(seconds(1));
  const v1::Job ended = Get(job.uid());
  EXPECT_EQ(ended.state(), v1::CANCELLED);
  EXPECT_NE(ended.message().find("its client was not heard for 10 s"), std::string::npos)
      << ended.message();
  const auto after = Hold(job.uid());
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->state(), v1::CANCELLED);
}

TEST_F(ReaderLeasesTest, OneThatWasNeverHeldCountsFromItsSubmission) {
  const v1::Job held = SubmitHeld("held");
  const v1::Job free = SubmitHeld("free", /*held=*/false);
  Pass(seconds(11));
  EXPECT_EQ(Get(held.uid()).state(), v1::CANCELLED);
  EXPECT_EQ(Get(free.uid()).state(), v1::QUEUED);
  const auto answer = Hold(free.uid());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_FALSE(answer->held());
  Pass(seconds(60));
  EXPECT_EQ(Get(free.uid()).state(), v1::QUEUED) << "a call makes no job a held one";
}

TEST_F(ReaderLeasesTest, ItsRankIsStoppedOnce) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = SubmitHeld("look");
  Accept(worker, job);
  Report(worker, RankMessage(job, 0, v1::READY));
  Report(worker, RankMessage(job, 0, v1::TRAINING));
  ASSERT_EQ(Get(job.uid()).state(), v1::RUNNING);
  PassBeating(seconds(14), {&worker});
  EXPECT_EQ(Get(job.uid()).state(), v1::STOPPING);
  EXPECT_EQ(CountCommands(worker, v1::Command::STOP_WITHOUT_SAVE), 1);
  EXPECT_EQ(CountCommands(worker, v1::Command::STOP_WITH_SAVE), 0);
  PassBeating(seconds(14), {&worker});
  EXPECT_EQ(CountCommands(worker, v1::Command::STOP_WITHOUT_SAVE), 1);
}

TEST_F(ReaderLeasesTest, ACoordinatorThatStartsAnewGivesTheWholeLimitAgain) {
  const v1::Job job = SubmitHeld("look");
  Pass(seconds(8));
  StartCore();
  Settle();
  Pass(seconds(8));
  EXPECT_EQ(Get(job.uid()).state(), v1::QUEUED);
  EXPECT_TRUE(IsHeldStill(job.uid()));
  Pass(seconds(8));
  EXPECT_EQ(Get(job.uid()).state(), v1::QUEUED);
  Pass(seconds(3));
  EXPECT_EQ(Get(job.uid()).state(), v1::CANCELLED);
}

TEST_F(ReaderLeasesTest, OnlyReadersAreHeld) {
  const Status refused = TrySubmitHeld(TinyJob("demo", 1), true).status();
  EXPECT_EQ(rpc::ReasonOf(refused), "WRONG_KIND") << refused;
  const v1::Job trains = Submit(TinyJob("demo", 1));
  EXPECT_EQ(rpc::ReasonOf(Hold(trains.uid()).status()), "WRONG_KIND");
  EXPECT_EQ(rpc::ReasonOf(Hold("0f8fad5b-d9cb-469f-a165-70867728950e").status()), "UNKNOWN_JOB");
}

// Whether it is held is a part of what was asked.
TEST_F(ReaderLeasesTest, ARepeatOfTheSubmissionIsTheSameJob) {
  const auto first = TrySubmitHeld(HeldReaderJob("look"), true, "id-1");
  ASSERT_TRUE(first.ok()) << first.status();
  const auto again = TrySubmitHeld(HeldReaderJob("look"), true, "id-1");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->job().uid(), first->job().uid());
  EXPECT_EQ(rpc::ReasonOf(TrySubmitHeld(HeldReaderJob("look"), false, "id-1").status()),
            "REQUEST_ID_REUSED");
}

}  // namespace
}  // namespace mt::daemon
