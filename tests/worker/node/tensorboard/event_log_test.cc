// What the agent of rank 0 writes into a job's event files: over epochs, and over its own restarts.
#include "worker/node/tensorboard/event_log.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatrain/v1/rank.pb.h"
#include "tests/common/tensorboard/event_records.h"
#include "tests/worker/node/agent/agent_rig.h"

namespace mt::node {
namespace {

using megatrain::v1::RankMessage;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class KeptEventFiles final : public EventFiles {
 public:
  void Begin(const EventFilePlace& place, std::string head) override {
    places.push_back(place);
    bytes.push_back(std::move(head));
  }
  void Append(const EventFilePlace& place, std::string records) override {
    EXPECT_EQ(place, places.back());
    bytes.back() += records;
  }
  void Close(const EventFilePlace& place) override { closed.push_back(place); }
  // Of the newest file: its version, the start, the loss of each step, and evaluations.
  std::vector<std::string> Lines() const {
    std::vector<std::string> lines = tensorboard::EventLinesOf(bytes.back());
    std::erase_if(lines, [](const std::string& line) {
      return line.find('=') != std::string::npos && line.find("lm loss") == std::string::npos;
    });
    return lines;
  }
  std::vector<EventFilePlace> places, closed;
  std::vector<std::string> bytes;
};

class EventLogTest : public AgentTest {
 protected:
  EventLogTest() {
    event_files_ = &files_;
    RestartAgent();
  }
  ~EventLogTest() override { agent_.reset(); }

  void StartJobWithEvents() {
    auto assign = AssignMessage(2);
    assign.mutable_assign()->mutable_spec()->mutable_telemetry()->set_tensorboard("curves");
    assign.mutable_assign()->mutable_spec()->mutable_training()->set_global_batch_size(16);
    coordinator_.Say(assign);
    loop_.RunPosted();
    for (int rank = 0; rank < 2; ++rank) Attach(rank);
  }
  void SayRunInfo(int64_t resumed_from, int64_t seq) {
    RankMessage message;
    message.set_seq(seq);
    message.mutable_job_report()->mutable_run_info()->set_resumed_from_step(resumed_from);
    ranks_.Say(100, message);
  }
  void SayEval(int64_t step, double loss, int64_t seq) {
    RankMessage message;
    message.set_seq(seq);
    message.mutable_job_report()->mutable_eval()->set_step(step);
    message.mutable_job_report()->mutable_eval()->set_loss(loss);
    message.mutable_job_report()->mutable_eval()->set_split("valid");
    ranks_.Say(100, message);
  }
  KeptEventFiles files_;
};

TEST_F(EventLogTest, AFileBeginsBehindTheBaseAndHasEachStepOnce) {
  StartJobWithEvents();
  EXPECT_THAT(files_.places, IsEmpty()) << "nothing is known of its first step";
  SayRunInfo(3, 1);
  EXPECT_THAT(files_.Lines(), ElementsAre("brain.Event:2", "start 4"));
  SayStep(4, 2);
  SayStep(5, 3);
  SayStep(5, 3);  // as after a broken call
  SayEval(5, 0.75, 4);
  SayEval(5, 0.75, 4);
  EXPECT_THAT(files_.Lines(), ElementsAre("brain.Event:2", "start 4", "4 lm loss=0.25",
                                          "5 lm loss=0.2", "5 lm loss validation=0.75"));
  ASSERT_EQ(files_.places.size(), 1U);
  EXPECT_EQ(files_.places[0].log_root, dir_);
  EXPECT_EQ(files_.places[0].folder, "curves/demo-job-uid-");
  EXPECT_EQ(files_.places[0].label, "job-uid--1");
  EXPECT_THAT(files_.closed, IsEmpty());
  EndRank(0, {});
  EndRank(1, {});
  EXPECT_EQ(files_.closed, files_.places);
}

TEST_F(EventLogTest, StepsHaveTheTagsOfTheirMetrics) {
  StartJobWithEvents();
  SayStep(1, 1);
  EXPECT_THAT(tensorboard::EventLinesOf(files_.bytes[0]),
              AllOf(Contains("1 grad-norm=0"), Contains("1 learning-rate=0"),
                    Contains("1 iteration-time=0"), Contains("1 batch-size=16"),
                    Not(Contains(HasSubstr("bits_per_byte")))));
}

TEST_F(EventLogTest, TheNextAgentBeginsAFileWhereItIsTold) {
  StartJobWithEvents();
  SayRunInfo(0, 1);
  SayStep(1, 2);
  RestartAgent();
  Attach(0);
  EXPECT_EQ(files_.places.size(), 1U);
  SayStep(1, 2);  // was not acknowledged
  SayStep(2, 3);
  ASSERT_EQ(files_.places.size(), 2U);
  EXPECT_THAT(files_.Lines(),
              ElementsAre("brain.Event:2", "start 1", "1 lm loss=1", "2 lm loss=0.5"));
}

TEST_F(EventLogTest, AnEvaluationThatComesFirstPurgesNoStep) {
  StartJobWithEvents();
  SayEval(5, 0.5, 7);
  EXPECT_THAT(files_.Lines(), ElementsAre("brain.Event:2", "start 6", "5 lm loss validation=0.5"));
}

TEST_F(EventLogTest, OnlyRankZeroAndOnlyJobsThatAsk) {
  StartJobWithEvents();
  RankMessage step;
  step.mutable_step()->set_step(1);
  ranks_.Say(101, step);
  EXPECT_THAT(files_.places, IsEmpty());
}

TEST_F(EventLogTest, AJobThatDoesNotAskHasNoFile) {
  StartJob(1);
  SayRunInfo(0, 1);
  SayStep(1, 2);
  EndRank(0, {});
  EXPECT_THAT(files_.places, IsEmpty());
  EXPECT_THAT(files_.closed, IsEmpty());
}

}  // namespace
}  // namespace mt::node
