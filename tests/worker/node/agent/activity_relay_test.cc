// What rank 0 is busy with, from its beats to the coordinator.
#include "tests/worker/node/agent/agent_rig.h"

namespace mt::node {
namespace {

using megatrain::v1::Activity;
using megatrain::v1::RankMessage;
using megatrain::v1::WorkerMessage;

class ActivityRelayTest : public AgentTest {
 protected:
  // A beat of that rank; done < 0: without an activity.
  void Beat(int rank, int64_t done) {
    RankMessage message;
    message.mutable_beat()->set_progress(1);
    if (done >= 0) {
      message.mutable_beat()->mutable_activity()->set_kind(Activity::SAVING);
      message.mutable_beat()->mutable_activity()->set_done(done);
    }
    ranks_.Say(100 + rank, message);
  }
  // "3 4 over": what the coordinator has heard.
  std::string Heard() {
    std::string text;
    for (const WorkerMessage& message : coordinator_.Heard(WorkerMessage::kJobReport)) {
      if (!message.job_report().has_activity()) continue;
      EXPECT_EQ(message.seq(), 0) << "not kept";
      EXPECT_EQ(message.job_report().job_uid(), kRigJob);
      EXPECT_EQ(message.job_report().epoch(), 1);
      const Activity& activity = message.job_report().activity();
      text += text.empty() ? "" : " ";
      text += activity.kind() == Activity::NONE ? "over" : std::to_string(activity.done());
    }
    return text;
  }
};

TEST_F(ActivityRelayTest, RankZerosIsToldAndItsEndOnce) {
  StartJob(2);
  Beat(0, -1);
  EXPECT_EQ(Heard(), "");
  Beat(0, 3);
  Beat(1, 9);
  Beat(0, 4);
  Beat(0, -1);
  Beat(0, -1);
  EXPECT_EQ(Heard(), "3 4 over");
  Beat(0, 0);
  EXPECT_EQ(Heard(), "3 4 over 0") << "the next one";
}

}  // namespace
}  // namespace mt::node
