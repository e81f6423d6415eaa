// What ranks do now, from their beats to the coordinator: once an interval, and only to one that
// knows it.
#include "tests/worker/node/agent/agent_rig.h"

namespace mt::node {
namespace {

using megatrain::v1::RankMessage;
using megatrain::v1::RankReading;
using megatrain::v1::RankReadings;
using megatrain::v1::WorkerMessage;

class ReadingRelayTest : public AgentTest {
 protected:
  void SetUp() override {
    megatrain::v1::CoordinatorMessage registered;
    registered.mutable_registered()->set_coordinator_uid("c");
    registered.mutable_registered()->set_heartbeat_interval_ms(2'000);
    registered.mutable_registered()->set_takes_readings(true);
    coordinator_.Break("to register anew");
    loop_.Advance(std::chrono::seconds(10));
    coordinator_.Say(registered);
    loop_.RunPosted();
  }
  // A beat after `step` steps, of which forward took a second and backward two.
  void Beat(int rank, int64_t step, std::vector<double> recent) {
    RankMessage message;
    message.mutable_beat()->set_step(step);
    auto& telemetry = *message.mutable_beat()->mutable_telemetry();
    (*telemetry.mutable_phase_seconds())["forward"] = static_cast<double>(step);
    (*telemetry.mutable_phase_seconds())["backward"] = 2.0 * static_cast<double>(step);
    (*telemetry.mutable_phase_seconds())["a new one"] = 1e6;
    (*telemetry.mutable_memory_bytes())["weights"] = 1'000;
    telemetry.set_host_memory_bytes(-5);
    telemetry.set_gpu_utilization(1.5);
    for (const double each : recent) telemetry.add_recent_step_seconds(each);
    ranks_.Say(100 + rank, message);
  }
  std::vector<RankReadings> Heard() const {
    std::vector<RankReadings> heard;
    for (const WorkerMessage& message : coordinator_.Heard(WorkerMessage::kRankReadings)) {
      EXPECT_EQ(message.seq(), 0) << "not kept";
      heard.push_back(message.rank_readings());
    }
    return heard;
  }
};

TEST_F(ReadingRelayTest, OneMessageAnIntervalWithWhatIsNew) {
  StartJob(2);
  Beat(0, 3, {0.5, 0.25});
  Beat(1, 3, {});
  Beat(0, 4, {0.125});
  EXPECT_TRUE(Heard().empty());
  loop_.Advance(std::chrono::seconds(1));
  ASSERT_EQ(Heard().size(), 1);
  EXPECT_EQ(Heard()[0].job_uid(), kRigJob);
  EXPECT_EQ(Heard()[0].epoch(), 1);
  ASSERT_EQ(Heard()[0].ranks_size(), 2);
  const RankReading first = Heard()[0].ranks(0);
  EXPECT_EQ(first.step(), 4);
  EXPECT_DOUBLE_EQ(first.step_seconds(), 0.125);
  EXPECT_DOUBLE_EQ(first.phase_shares().at("forward"), 1.0 / 3);
  EXPECT_DOUBLE_EQ(first.phase_shares().at("backward"), 2.0 / 3);
  EXPECT_FALSE(first.phase_shares().contains("a new one"));
  EXPECT_EQ(first.memory_bytes().at("weights"), 1'000);
  EXPECT_EQ(first.host_memory_bytes(), 0) << "ranks are not trusted";
  EXPECT_DOUBLE_EQ(first.gpu_utilization(), 1);
  EXPECT_EQ(Heard()[0].ranks(1).step_seconds(), 0);
  // Only who has beaten again is told again; shares stay where no step was done.
  loop_.Advance(std::chrono::seconds(1));
  EXPECT_EQ(Heard().size(), 1);
  Beat(0, 4, {});
  loop_.Advance(std::chrono::seconds(1));
  ASSERT_EQ(Heard().size(), 2);
  ASSERT_EQ(Heard()[1].ranks_size(), 1);
  EXPECT_DOUBLE_EQ(Heard()[1].ranks(0).phase_shares().at("backward"), 2.0 / 3);
  EXPECT_DOUBLE_EQ(Heard()[1].ranks(0).step_seconds(), 0.125);
}

TEST_F(ReadingRelayTest, ACoordinatorThatDoesNotKnowThemGetsNone) {
  coordinator_.Break("an older one");
  loop_.Advance(std::chrono::seconds(10));
  coordinator_.Register();
  StartJob(1);
  Beat(0, 3, {0.5});
  loop_.Advance(std::chrono::seconds(2));
  EXPECT_TRUE(Heard().empty());
}

}  // namespace
}  // namespace mt::node
