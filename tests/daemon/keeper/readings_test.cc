// What ranks do now, as agents report it and readers get it: the newest of each rank of the open
// epoch, in memory only.
#include "tests/daemon/core/core_fixture.h"

namespace mt::daemon {
namespace {

class ReadingsTest : public CoreTest {
 protected:
  void Report(Worker& worker, const v1::Job& job, int64_t epoch, int rank, double took) {
    v1::WorkerMessage message;
    v1::RankReadings& readings = *message.mutable_rank_readings();
    readings.set_job_uid(job.uid());
    readings.set_epoch(epoch);
    readings.add_ranks()->set_rank(rank);
    readings.mutable_ranks(0)->set_step_seconds(took);
    readings.mutable_ranks(0)->set_node("forged");
    core_->sessions().OnMessage(worker.session, message);
  }
  // "0 n1 0.5 @200": rank, node, step time and age of what is read of the job; "" for nothing.
  std::string Read(const std::string& uid) {
    v1::ReadRanksRequest request;
    if (!uid.empty()) request.mutable_job()->set_uid(uid);
    v1::ReadRanksResponse response;
    EXPECT_TRUE(core_->api().streams().ReadRanks(request, &response).ok());
    std::string text;
    for (const v1::RankReadings& job : response.jobs()) {
      for (const v1::RankReading& rank : job.ranks()) {
        text += fmt::format("{}{} {} {} @{}", text.empty() ? "" : ", ", rank.rank(), rank.node(),
                            rank.step_seconds(), rank.age_ms());
      }
    }
    return text;
  }
};

TEST_F(ReadingsTest, TheNewestOfEachRankOfTheOpenEpoch) {
  Worker worker = NewWorker("n1", 2);
  Worker other = NewWorker("n2", 2);
  const v1::Job job = StartRunning(worker, "demo", 2);
  EXPECT_EQ(Read(job.uid()), "");
  Report(worker, job, job.epoch(), 1, 0.5);
  clock_.Advance(std::chrono::milliseconds(200));
  Report(worker, job, job.epoch(), 0, 0.25);
  EXPECT_EQ(Read(job.uid()), "0 n1 0.25 @0, 1 n1 0.5 @200");
  Report(worker, job, job.epoch(), 1, 0.75);
  EXPECT_EQ(Read(""), "0 n1 0.25 @0, 1 n1 0.75 @0") << "of all jobs";
  // Not of this epoch, no such rank, not of this node.
  Report(worker, job, job.epoch() + 1, 0, 9);
  Report(worker, job, job.epoch(), 2, 9);
  Report(other, job, job.epoch(), 0, 9);
  EXPECT_EQ(Read(job.uid()), "0 n1 0.25 @0, 1 n1 0.75 @0");
  EXPECT_EQ(core_->reports().num_fenced(), 0) << "readings that come late are no fault";
  v1::ReadRanksRequest request;
  request.mutable_job()->set_name("none");
  v1::ReadRanksResponse response;
  EXPECT_TRUE(absl::IsNotFound(core_->api().streams().ReadRanks(request, &response)));
}

TEST_F(ReadingsTest, NothingIsLeftOfAJobThatEnded) {
  Worker worker = NewWorker("n1", 1);
  const v1::Job job = StartRunning(worker, "demo", 1);
  Report(worker, job, job.epoch(), 0, 0.5);
  core_->feeds().ranks().Forget("another");
  EXPECT_EQ(Read(job.uid()), "0 n1 0.5 @0");
  v1::Job ended = job;
  ended.set_state(v1::SUCCEEDED);
  core_->feeds().PublishJob(ended);
  EXPECT_EQ(Read(job.uid()), "");
}

}  // namespace
}  // namespace mt::daemon
