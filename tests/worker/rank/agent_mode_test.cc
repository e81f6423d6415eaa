// The real mt-rank under an agent: commands over the socket, and agents that die.
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/worker/rank/agent_mode_rig.h"
#include "worker/checkpoint/format/root_marker.h"
#include "worker/node/ranks/unsent_messages.h"

namespace mt::rank {
namespace {

using megatrain::v1::AgentMessage;
using megatrain::v1::Command;
using megatrain::v1::CommandDone;
using megatrain::v1::RankMessage;

TEST_F(AgentModeTest, CommandsGoAllTheWay) {
  TestAgent agent(socket_,
                  Assign(Job({"training.train_iters=1000000", "training.eval.decode_tokens=12"}),
                         /*hold=*/true));
  Start();
  const RankMessage held =
      agent.Await([](const RankMessage& m) { return IsState(m, megatrain::v1::HELD); });
  EXPECT_EQ(held.state().step(), 0);
  const CommandDone zero = Do(&agent, Order("zero", Command::CHECKPOINT_NOW));
  EXPECT_EQ(zero.checkpoint().step(), 0);
  EXPECT_TRUE(base::Exists(base::JoinPath(zero.checkpoint().path(), "manifest.json")));
  AgentMessage write = Order("early", Command::DECODE);
  auto& asked = *write.mutable_word()->mutable_generate();
  asked.add_prompts("abc");
  asked.set_tokens(3);
  asked.set_samples(1);
  asked.set_top_p(1);
  asked.set_repetition_penalty(1);
  EXPECT_NE(Do(&agent, write).error().find("the ranks are held"), std::string::npos);
  EXPECT_EQ(Do(&agent, Order("on", Command::RESUME)).step(), 0);
  write.mutable_word()->set_command_id("write");
  const CommandDone written = Do(&agent, write);
  EXPECT_EQ(written.step(), written.word_step() + 1);
  ASSERT_EQ(written.decoded().texts_size(), 1) << written.error();
  EXPECT_NE(written.decoded().texts(0).finish(), "");
  asked.set_prompts(0, std::string(13, 'a'));
  write.mutable_word()->set_command_id("long");
  EXPECT_NE(Do(&agent, write).error().find("decode_tokens"), std::string::npos);

  const CommandDone hold = Do(&agent, Order("hold", Command::HOLD));
  EXPECT_GT(hold.word_step(), 0);
  EXPECT_EQ(hold.step(), hold.word_step() + 1);
  EXPECT_EQ(last_step_, hold.step()) << "every step is reported, and no other follows";
  AgentMessage update = Order("update", Command::UPDATE);
  *update.mutable_word()->mutable_spec() =
      Job({"training.train_iters=1000000", "training.log_every=5"});
  EXPECT_EQ(Do(&agent, update).error(), "");
  // Of another shape: whatever else the job says, only what may change is taken over; what is no
  // job is refused.
  update.mutable_word()->set_command_id("broken");
  update.mutable_word()->mutable_spec()->mutable_model()->set_heads(5);
  EXPECT_NE(Do(&agent, update).error(), "");
  EXPECT_NE(Do(&agent, Order("odd", Command::KILL)).error(), "");
  EXPECT_EQ(last_step_, hold.step());

  const CommandDone stop = Do(&agent, Order("stop", Command::STOP_WITH_SAVE));
  EXPECT_EQ(stop.checkpoint().step(), hold.step());
  const RankMessage ended = agent.Await([](const RankMessage& m) { return m.has_job_report(); });
  EXPECT_EQ(ended.job_report().training_ended().last_step(), hold.step());
  EXPECT_EQ(Wait(), 0) << data::ReadText(dir_.Path("err"));
  EXPECT_FALSE(base::Exists(UnsentPath())) << "everything was acknowledged";
}

TEST_F(AgentModeTest, TrainsToTheEndWithoutItsAgentAndLeavesItsReports) {
  auto agent = std::make_unique<TestAgent>(
      socket_, Assign(Job({"training.exit_at_iter=150"}), /*hold=*/false, /*acknowledge=*/false));
  Start();
  agent->Await([](const RankMessage& m) { return m.has_step() && m.step().step() >= 3; });
  agent = nullptr;
  EXPECT_EQ(Wait(), 0) << data::ReadText(dir_.Path("err"));
  std::vector<int64_t> seqs;
  int64_t steps = 0;
  RankMessage last;
  EXPECT_TRUE(node::ReadUnsent(data::ReadText(UnsentPath()), [&](const RankMessage& message) {
    seqs.push_back(message.seq());
    if (message.has_step()) {
      EXPECT_EQ(message.step().step(), ++steps);
      EXPECT_EQ(message.step().epoch(), 1);
    }
    last = message;
  }));
  EXPECT_EQ(steps, 150) << "each step exactly once";
  for (size_t i = 0; i < seqs.size(); ++i) EXPECT_EQ(seqs[i], static_cast<int64_t>(i) + 1);
  EXPECT_EQ(last.job_report().rank_seq(), last.seq());
  EXPECT_EQ(last.job_report().training_ended().last_step(), 150);
  EXPECT_EQ(last.job_report().training_ended().exit_condition(), "training.exit_at_iter 150");
}

TEST_F(AgentModeTest, TheNextAgentMissesNothing) {
  TestAgent::Options options = Assign(Job({"training.train_iters=1000000"}));
  // What the coordinator would have; agents come and go, one at a time.
  std::map<int64_t, int64_t> step_of_seq;
  options.keep = [&](const RankMessage& message) {
    if (!message.has_step()) return;
    const auto [entry, is_new] = step_of_seq.emplace(message.seq(), message.step().step());
    EXPECT_EQ(entry->second, message.step().step()) << "the same number, another step";
  };
  auto agent = std::make_unique<TestAgent>(socket_, options);
  Start();
  for (const int64_t until : {20, 40, 60, 80}) {
    agent->Await([until](const RankMessage& message) {
      return message.has_step() && message.step().step() >= until;
    });
    agent = nullptr;
    agent = std::make_unique<TestAgent>(socket_, options);
    const RankMessage hello = agent->Next();
    ASSERT_TRUE(hello.has_hello());
    EXPECT_EQ(hello.hello().state(), megatrain::v1::TRAINING);
    EXPECT_GE(hello.hello().step(), until);
  }
  agent->Say(Order("stop", Command::STOP_WITHOUT_SAVE));
  const RankMessage ended =
      agent->Await([](const RankMessage& m) { return m.job_report().has_training_ended(); });
  EXPECT_EQ(Wait(), 0);
  agent = nullptr;
  int64_t step = 0;
  for (const auto& [seq, heard] : step_of_seq) EXPECT_EQ(heard, ++step) << "seq " << seq;
  EXPECT_EQ(step, ended.job_report().training_ended().last_step());
}

// The first of two ranks, of which the second never comes.
TEST_F(AgentModeTest, TellsTheNextAgentTheRendezvousAgain) {
  TestAgent::Options options = Assign(Job({"parallel.data=2", "training.global_batch_size=4"}));
  options.assignment.set_world_size(2);
  auto agent = std::make_unique<TestAgent>(socket_, options);
  Start();
  const RankMessage set = agent->Await([](const RankMessage& m) { return m.has_rendezvous_set(); });
  const RankMessage get = agent->Await([](const RankMessage& m) { return m.has_rendezvous_get(); });
  agent = nullptr;
  TestAgent next(socket_, options);
  next.Await([&set](const RankMessage& m) {
    return m.rendezvous_set().key() == set.rendezvous_set().key() &&
           m.rendezvous_set().value() == set.rendezvous_set().value();
  });
  next.Await([&get](const RankMessage& m) {
    return m.rendezvous_get().key() == get.rendezvous_get().key();
  });
}

TEST_F(AgentModeTest, BeatsTellWhereTheDeviceStandsAndSoDoesTheLogOfOneThatIsEnded) {
  TestAgent agent(socket_, Assign(Job({"training.train_iters=1000000"})));
  Start();
  agent.AwaitBeatWith([](const megatrain::v1::RankBeat& beat) {
    return beat.mark().text().find("marks enqueued behind it") != std::string::npos &&
           beat.mark().text().find("step ") != std::string::npos && !beat.mark().phase().empty();
  });
  // Held, it stands at a place that can be told exactly.
  const CommandDone hold = Do(&agent, Order("hold", Command::HOLD));
  const megatrain::v1::RankBeat held = agent.AwaitBeatWith([&](const megatrain::v1::RankBeat& b) {
    return b.step() == hold.step() && b.mark().phase() == "other";
  });
  EXPECT_NE(held.mark().text().find(fmt::format("step {}", hold.step())), std::string::npos)
      << held.mark().text();
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(Wait(), 75);
  const std::string log = data::ReadText(dir_.Path("err"));
  EXPECT_NE(log.find("ends at once why=SIGTERM device=\""), std::string::npos) << log;
  EXPECT_NE(log.find(fmt::format("step {}", hold.step())), std::string::npos) << log;
}

// A release whose save fails holds the rank; a fence that is gone is raised again once the agent
// hands on that the epoch is open.
TEST_F(AgentModeTest, AReleaseWithoutTheFolderHoldsAndAFenceIsRaisedAgain) {
  const std::string root = dir_.Path("checkpoints");
  ASSERT_TRUE(base::MakeDirs(root).ok());
  TestAgent::Options options = Assign(Job({"training.train_iters=1000000"}));
  options.assignment.set_checkpoint_root_id(checkpoint::EnsureRootMarker(root, "n1").value().id);
  TestAgent agent(socket_, options);
  Start(/*epoch=*/3);
  agent.AwaitBeat(1);
  ASSERT_FALSE(Do(&agent, Order("save", Command::CHECKPOINT_NOW)).checkpoint().path().empty());
  const std::string folder = base::JoinPath(root, "tiny");
  std::filesystem::rename(folder, folder + "-aside");
  const CommandDone held = Do(&agent, Order("release", Command::RELEASE));
  EXPECT_TRUE(held.held());
  EXPECT_NE(held.error().find("FENCE is gone"), std::string::npos) << held.error();
  std::filesystem::rename(folder + "-aside", folder);
  std::filesystem::remove(folder + "/FENCE");
  // Closed, as far as anybody says; then open.
  for (const bool open : {false, true}) {
    agent.Say(Order(open ? "again" : "closed", Command::RELEASE));
    const RankMessage query = agent.Await([](const RankMessage& m) { return m.has_epoch_query(); });
    EXPECT_EQ(query.seq(), 0) << "it may be lost";
    AgentMessage answer;
    answer.mutable_epoch_answer()->set_query_id(query.epoch_query().query_id());
    answer.mutable_epoch_answer()->set_open(open);
    agent.Say(answer);
    const CommandDone done =
        agent.Await([](const RankMessage& m) { return m.has_command_done(); }).command_done();
    EXPECT_EQ(done.held(), !open) << done.error();
    EXPECT_EQ(done.step(), held.step()) << "nothing moved meanwhile";
    EXPECT_EQ(done.checkpoint().step(), open ? held.step() : 0);
  }
  EXPECT_EQ(Wait(), 0) << data::ReadText(dir_.Path("err"));
  EXPECT_TRUE(base::Exists(folder + "/FENCE"));
}

TEST_F(AgentModeTest, AnOldEpochIsRefusedByTheFence) {
  {
    TestAgent agent(socket_, Assign(Job({"training.train_iters=2"})));
    Start(/*epoch=*/3);
    EXPECT_EQ(Wait(), 0);
  }
  {
    TestAgent agent(socket_, Assign(Job({"training.train_iters=2"})));
    Start(/*epoch=*/2);
    const RankMessage fault = agent.Await([](const RankMessage& m) { return m.has_fault(); });
    EXPECT_EQ(fault.fault().fence_epoch(), 3);
    EXPECT_EQ(Wait(), 64);
  }
  TestAgent agent(socket_, Assign(Job({"training.train_iters=2"})));
  Start(/*epoch=*/3);
  const RankMessage fault = agent.Await([](const RankMessage& m) { return m.has_fault(); });
  EXPECT_NE(fault.fault().message().find("is not above"), std::string::npos);
  EXPECT_EQ(fault.fault().fence_epoch(), 0) << "that is its own";
  EXPECT_EQ(Wait(), 64);
}

TEST_F(AgentModeTest, ARunThatWasBegunOnPurposeHasItsToken) {
  TestAgent::Options options = Assign(Job({"training.train_iters=2", "checkpoint.directory=tiny"}));
  options.assignment.set_restart("the-token");
  TestAgent agent(socket_, options);
  Start();
  EXPECT_EQ(Wait(), 0) << data::ReadText(dir_.Path("err"));
  const std::string runs = data::ReadText(dir_.Path("checkpoints/tiny/run.json"));
  EXPECT_NE(runs.find("the-token"), std::string::npos) << runs;
}

TEST_F(AgentModeTest, ABaseThatIsNotThereIsReportedWithItsReason) {
  TestAgent::Options options = Assign(Job({"training.train_iters=2"}));
  megatrain::v1::CheckpointBase& base = *options.assignment.mutable_base();
  base.set_job_uid("job-1");
  base.set_step(20);
  base.set_digest("xxh3:20");
  base.set_root_id("root-a");
  TestAgent agent(socket_, options);
  Start(/*epoch=*/2);
  const RankMessage fault = agent.Await([](const RankMessage& m) { return m.has_fault(); });
  EXPECT_EQ(fault.fault().reason(), "EXPECTED_CHECKPOINT_MISSING");
  for (const char* part : {"step 20", "xxh3:20", "this is another root", "root-a"})
    EXPECT_NE(fault.fault().message().find(part), std::string::npos) << fault.fault().message();
  EXPECT_EQ(Wait(), 73);
  EXPECT_TRUE(std::filesystem::is_empty(dir_.Path("checkpoints")));
}

}  // namespace
}  // namespace mt::rank
