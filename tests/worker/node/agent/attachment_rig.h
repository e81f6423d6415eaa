// AgentTest with helpers for the numbered messages of ranks and for what they leave unsent.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include <google/protobuf/util/delimited_message_util.h>
#include <gtest/gtest.h>

#include "tests/worker/node/agent/agent_rig.h"

namespace mt::node {

class AttachmentTest : public AgentTest {
 protected:
  void Ack(int64_t seq) {
    megatrain::v1::CoordinatorMessage message;
    message.mutable_report_ack()->set_seq(seq);
    coordinator_.Say(message);
    loop_.RunPosted();
  }
  // The number last acknowledged to rank 0; 0 if none was.
  int64_t Told(LinkId link = 100) {
    int64_t seq = 0;
    for (const megatrain::v1::AgentMessage& message : ranks_.heard[link]) {
      if (message.has_ack()) seq = message.ack().seq();
    }
    return seq;
  }
  static megatrain::v1::RankMessage Saved(int64_t step, int64_t seq) {
    megatrain::v1::RankMessage message;
    message.mutable_job_report()->mutable_checkpoint_saved()->set_step(step);
    message.set_seq(seq);
    return message;
  }
  static megatrain::v1::RankMessage Step(int64_t step, int64_t seq) {
    megatrain::v1::RankMessage message;
    message.mutable_step()->set_step(step);
    message.set_seq(seq);
    return message;
  }
  static megatrain::v1::RankMessage Done(const std::string& id, int64_t seq) {
    megatrain::v1::RankMessage message;
    message.mutable_command_done()->set_command_id(id);
    message.mutable_command_done()->set_step(9);
    message.set_seq(seq);
    return message;
  }
  // The bytes of unsent.pb.
  static std::string Unsent(const std::vector<megatrain::v1::RankMessage>& messages) {
    std::ostringstream out;
    for (const megatrain::v1::RankMessage& message : messages) {
      EXPECT_TRUE(google::protobuf::util::SerializeDelimitedToOstream(message, &out));
    }
    return out.str();
  }
  std::vector<int64_t> HeardSteps() {
    std::vector<int64_t> steps;
    for (const megatrain::v1::WorkerMessage& message :
         coordinator_.Heard(megatrain::v1::WorkerMessage::kSteps)) {
      for (const auto& step : message.steps().steps()) steps.push_back(step.step());
    }
    return steps;
  }
  // The rank calls a new agent and reports its state and step.
  void AttachAgain(int rank, megatrain::v1::RankState state, int64_t step) {
    megatrain::v1::RankMessage message;
    auto& hello = *message.mutable_hello();
    hello.set_job_uid(kRigJob);
    hello.set_epoch(1);
    hello.set_rank(rank);
    hello.set_token(Token(rank));
    hello.set_pid(4000 + rank);
    hello.set_state(state);
    hello.set_step(step);
    ranks_.Say(100 + rank, message);
  }
  void StartStopJob(int num_ranks) {
    auto message = AssignMessage(num_ranks);
    message.mutable_assign()->mutable_spec()->mutable_resilience()->set_on_agent_exit(
        megatrain::v1::Resilience::ON_AGENT_EXIT_STOP);
    coordinator_.Say(message);
    for (int rank = 0; rank < num_ranks; ++rank) Attach(rank);
  }
};

}  // namespace mt::node
