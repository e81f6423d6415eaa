// Numbered messages of ranks are forwarded once and acknowledged when they have arrived.
#include "worker/node/ranks/report_relay.h"

#include "tests/worker/node/ranks/rank_parts_rig.h"

namespace mt::node {
namespace {

using megatrain::v1::RankMessage;
using megatrain::v1::StepRecord;
using megatrain::v1::WorkerMessage;

class ReportRelayTest : public RankPartsTest {
 protected:
  ReportRelayTest()
      : relay_({.links = &links_,
                .job_uid = "job-1",
                .epoch = 3,
                .report =
                    [this](WorkerMessage message, Outbox::Acked acked) {
                      reports_.push_back(std::move(message));
                      acked_.push_back(std::move(acked));
                    },
                .report_step =
                    [this](const StepRecord& step, Outbox::Acked acked) {
                      steps_.push_back(step.step());
                      acked_.push_back(std::move(acked));
                    }}) {}
  static RankMessage Step(int64_t step, int64_t seq) {
    RankMessage message;
    message.set_seq(seq);
    message.mutable_step()->set_step(step);
    return message;
  }
  int64_t LastAck(int rank) {
    const auto& heard = links_.heard[100 + rank];
    return heard.empty() ? 0 : heard.back().ack().seq();
  }

  std::vector<WorkerMessage> reports_;
  std::vector<int64_t> steps_;
  std::vector<Outbox::Acked> acked_;
  ReportRelay relay_;
};

TEST_F(ReportRelayTest, ForwardsEachNumberOncePerRank) {
  EXPECT_TRUE(relay_.Forward(&Rank(0), Step(1, 1)));
  EXPECT_TRUE(relay_.Forward(&Rank(0), Step(2, 2)));
  EXPECT_FALSE(relay_.Forward(&Rank(0), Step(1, 1)));
  EXPECT_FALSE(relay_.Forward(&Rank(0), Step(2, 2)));
  EXPECT_TRUE(relay_.Forward(&Rank(1), Step(7, 1)));
  EXPECT_TRUE(relay_.Forward(&Rank(0), Step(3, 0)));  // without a number
  EXPECT_TRUE(relay_.Forward(&Rank(0), Step(3, 0)));
  EXPECT_EQ(steps_, (std::vector<int64_t>{1, 2, 7, 3, 3}));
  EXPECT_EQ(Rank(0).step, 3);
  EXPECT_EQ(Rank(1).step, 7);
}

TEST_F(ReportRelayTest, AReportCarriesJobEpochAndNumber) {
  RankMessage message;
  message.set_seq(5);
  message.mutable_command_done()->set_command_id("c");
  ASSERT_TRUE(relay_.Forward(&Rank(0), message));
  ASSERT_EQ(reports_.size(), 1U);
  EXPECT_EQ(reports_[0].job_report().job_uid(), "job-1");
  EXPECT_EQ(reports_[0].job_report().epoch(), 3);
  EXPECT_EQ(reports_[0].job_report().rank_seq(), 5);
  EXPECT_EQ(reports_[0].job_report().command_done().command_id(), "c");
}

TEST_F(ReportRelayTest, TheRankIsToldWhatHasArrivedAndNeverLess) {
  relay_.Forward(&Rank(0), Step(1, 1));
  relay_.Forward(&Rank(0), Step(2, 2));
  EXPECT_EQ(LastAck(0), 0);
  acked_[1]();
  EXPECT_EQ(LastAck(0), 2);
  acked_[0]();
  EXPECT_EQ(LastAck(0), 2);
  EXPECT_TRUE(links_.heard[101].empty());
}

TEST_F(ReportRelayTest, AnAckThatCouldNotBeSentIsRepeated) {
  relay_.RepeatAck(Rank(0));
  EXPECT_TRUE(links_.heard[100].empty());  // nothing has arrived
  relay_.Forward(&Rank(0), Step(1, 1));
  Rank(0).link = kNoLink;
  acked_[0]();
  EXPECT_TRUE(links_.heard[100].empty());
  Rank(0).link = 100;
  relay_.RepeatAck(Rank(0));
  EXPECT_EQ(LastAck(0), 1);
}

}  // namespace
}  // namespace mt::node
