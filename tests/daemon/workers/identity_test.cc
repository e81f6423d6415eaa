// Who may have a node's name: twins, agents and hosts that start anew, secrets, and an operator's
// word.
#include "tests/daemon/workers/identity_rig.h"

namespace mt::daemon {
namespace {

using std::chrono::seconds;

TEST_F(IdentityTest, AnotherHostTakesNoNameWhoseHolderIsHeard) {
  Worker holder = NewProcess("n1");
  ASSERT_TRUE(Register(&holder, {}));
  const v1::Job job = StartRunning(holder, "demo", 1);
  Worker twin = NewProcess("n1");
  const Host elsewhere{.boot = "boot-2", .machine = "machine-2", .address = "10.0.0.2"};
  EXPECT_FALSE(Register(&twin, elsewhere));
  EXPECT_EQ(ReasonOf(twin), "NODE_NAME_IN_USE");
  EXPECT_FALSE(holder.link->closed);
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  // Nor while the holder connects anew: a claimant that tries again must not win that race.
  core_->sessions().OnClosed(holder.session);
  Pass(seconds(9));
  EXPECT_FALSE(Register(&twin, elsewhere));
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  ASSERT_TRUE(Register(&holder, {.held = {Held(job, v1::TRAINING)}}));
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  // Nor as the same machine, booted again: a copy of a disk says so, too.
  Worker copy = NewProcess("n1");
  EXPECT_FALSE(Register(&copy, {.boot = "boot-3"}));
  EXPECT_FALSE(holder.link->closed);
}

TEST_F(IdentityTest, AnotherHostTakesNoNameWhenTheCoordinatorHasJustStarted) {
  Worker holder = NewProcess("n1");
  ASSERT_TRUE(Register(&holder, {}));
  const v1::Job job = StartRunning(holder, "demo", 1);
  StartCore();
  Worker twin = NewProcess("n1");
  EXPECT_FALSE(Register(&twin, {.boot = "boot-2", .machine = "machine-2"}));
  ASSERT_TRUE(Register(&holder, {.held = {Held(job, v1::TRAINING)}}));
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
}

TEST_F(IdentityTest, AnAgentOfTheSameBootStartsAnewAtOnce) {
  Worker holder = NewProcess("n1");
  Host host;
  ASSERT_TRUE(Register(&holder, host));
  KeepSecret(holder, &host);
  const v1::Job job = StartRunning(holder, "demo", 1);
  Worker next = NewProcess("n1");
  EXPECT_FALSE(Register(&next, host)) << "the one before is connected";
  core_->sessions().OnClosed(holder.session);
  host.held = {Held(job, v1::SPAWNED)};
  EXPECT_TRUE(Register(&next, host));
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
}

TEST_F(IdentityTest, AnotherMachineInheritsTheNameAndNoRanks) {
  Worker holder = NewProcess("n1");
  Host first{.machine = ""};
  ASSERT_TRUE(Register(&holder, first, 2));
  KeepSecret(holder, &first);
  const v1::Job job = StartRunning(holder, "demo", 1);
  core_->sessions().OnClosed(holder.session);
  PassBeating(seconds(10), {});
  // A pod that moved: it has the secret, and is silent about the ranks of the one before.
  Worker moved = NewProcess("n1");
  Host second = first;
  second.boot = "boot-2";
  ASSERT_TRUE(Register(&moved, second, 2));
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING) << "nobody knows that its rank is gone";
  EXPECT_EQ(Get(job.uid()).ranks(0).state(), v1::UNKNOWN);
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "NodeUnreachable");
  ASSERT_EQ(Events("NodeChangedMachine").size(), 1u);
  EXPECT_NE(Events("NodeChangedMachine")[0].message().find("declare-dead n1"), std::string::npos);
  // Its slot is offered to nobody, the other one is; and nothing of this changes when the new
  // machine connects again, or the coordinator starts anew.
  StartCore();
  ASSERT_TRUE(Register(&moved, second, 2));
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "NodeUnreachable");
  const v1::Job other = StartRunning(moved, "other", 1);
  EXPECT_EQ(Get(other.uid()).ranks(0).slot(), 1);
  EXPECT_EQ(Submit(TinyJob("third", 1)).state(), v1::QUEUED);
  // The machine before is back: it is a twin now.
  EXPECT_FALSE(Register(&holder, first, 2));
  EXPECT_EQ(ReasonOf(holder), "NODE_NAME_IN_USE");
  // An operator says that nothing runs there; what the new machine runs is not meant.
  v1::DeclareDeadRequest request;
  request.set_node("n1");
  v1::Node node;
  ASSERT_TRUE(core_->api().nodes().DeclareDead(request, "operator", &node).ok());
  Settle();
  EXPECT_EQ(node.state(), v1::NODE_READY);
  EXPECT_EQ(Get(job.uid()).state(), v1::FAILED);
  EXPECT_EQ(Get(other.uid()).state(), v1::RUNNING);
  EXPECT_EQ(rpc::ReasonOf(core_->api().nodes().DeclareDead(request, "operator", &node)),
            "NODE_ALIVE");
}

TEST_F(IdentityTest, AMachineThatTakesItsNameBackHasItsRanks) {
  Worker holder = NewProcess("n1");
  Host first;
  ASSERT_TRUE(Register(&holder, first));
  KeepSecret(holder, &first);
  const v1::Job job = StartRunning(holder, "demo", 1);
  core_->sessions().OnClosed(holder.session);
  PassBeating(seconds(10), {});
  Worker moved = NewProcess("n1");
  Host second = first;
  second.boot = "boot-2";
  second.machine = "machine-2";
  ASSERT_TRUE(Register(&moved, second));
  core_->sessions().OnClosed(moved.session);
  PassBeating(seconds(10), {});
  first.held = {Held(job, v1::TRAINING)};
  ASSERT_TRUE(Register(&holder, first));
  EXPECT_EQ(Get(job.uid()).ranks(0).state(), v1::TRAINING);
  EXPECT_EQ(ConditionsOf(Get(job.uid())), "");
  EXPECT_EQ(CountCommands(holder, v1::Command::KILL), 0);
  // Nothing is left behind any more that an operator could declare dead.
  v1::DeclareDeadRequest request;
  request.set_node("n1");
  v1::Node node;
  EXPECT_EQ(rpc::ReasonOf(core_->api().nodes().DeclareDead(request, "operator", &node)),
            "NODE_ALIVE");
  EXPECT_EQ(Get(job.uid()).state(), v1::RUNNING);
}

TEST_F(IdentityTest, APodThatIsReplacedIsNoTwin) {
  Worker holder = NewProcess("n1");
  Host host{.machine = ""};
  ASSERT_TRUE(Register(&holder, host));
  KeepSecret(holder, &host);
  core_->sessions().OnClosed(holder.session);
  Worker replaced = NewProcess("n1");
  host.boot = "boot-2";
  host.address = "10.0.0.2";
  EXPECT_FALSE(Register(&replaced, host)) << "it waits until the one before was silent for 10 s";
  EXPECT_EQ(Events("NodeClaimRefused").size(), 0u);
  EXPECT_EQ(Node("n1").refused_claim(), "");
  Pass(seconds(11));
  EXPECT_TRUE(Register(&replaced, host));
  EXPECT_EQ(Events("NodeChangedMachine").size(), 0u) << "it left nothing behind";
}

TEST_F(IdentityTest, OnlyABootOfTheSameMachineProvesThatItsRanksAreGone) {
  const struct {
    std::string before, after;
    v1::JobState state;
  } cases[] = {{"machine-1", "machine-1", v1::FAILED},
               {"machine-1", "machine-2", v1::RUNNING},
               {"machine-1", "", v1::RUNNING},
               {"", "", v1::RUNNING}};
  for (const auto& one : cases) {
    Worker holder = NewProcess("of-" + one.before + "-" + one.after);
    ASSERT_TRUE(Register(&holder, {.machine = one.before}));
    const v1::Job job = StartRunning(holder, "demo-" + one.before + "-" + one.after, 1);
    core_->sessions().OnClosed(holder.session);
    PassBeating(seconds(10), {});
    Worker next = NewProcess(holder.node);
    ASSERT_TRUE(Register(&next, {.boot = "boot-2", .machine = one.after}));
    EXPECT_EQ(Get(job.uid()).state(), one.state) << one.before << " " << one.after;
    if (one.state == v1::FAILED) {
      EXPECT_NE(Get(job.uid()).message().find("booted again"), std::string::npos);
    }
    PassBeating(seconds(40), {});  // no slot for the next job here
  }
}

TEST_F(IdentityTest, ARefusedClaimIsShownOncePerAddress) {
  Worker holder = NewProcess("n1");
  Host host;
  ASSERT_TRUE(Register(&holder, host));
  KeepSecret(holder, &host);
  Worker twin = NewProcess("n1");
  const Host elsewhere{.boot = "boot-2", .machine = "machine-2", .address = "10.0.0.2"};
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(Register(&twin, elsewhere));
  ASSERT_EQ(Events("NodeClaimRefused").size(), 1u);
  EXPECT_EQ(Events("NodeClaimRefused")[0].node(), "n1");
  EXPECT_NE(Node("n1").refused_claim().find("10.0.0.2"), std::string::npos);
  EXPECT_FALSE(Register(&twin, {.boot = "boot-3", .machine = "m", .address = "10.0.0.3"}));
  EXPECT_EQ(Events("NodeClaimRefused").size(), 2u);
  EXPECT_NE(Node("n1").refused_claim().find("10.0.0.3"), std::string::npos);
  StartCore();
  EXPECT_NE(Node("n1").refused_claim(), "") << "it is on disk";
  ASSERT_TRUE(Register(&holder, host));
  EXPECT_EQ(Node("n1").refused_claim(), "");
}

TEST_F(IdentityTest, AnEndlessRowOfAddressesDoesNotFillTheEvents) {
  Worker holder = NewProcess("n1");
  ASSERT_TRUE(Register(&holder, {}));
  Worker twin = NewProcess("n1");
  for (int i = 0; i < 200; ++i) {
    EXPECT_FALSE(Register(&twin, {.boot = "boot-2", .address = std::to_string(i)}));
  }
  EXPECT_LE(Events("NodeClaimRefused").size(), 64u);
  EXPECT_FALSE(Register(&twin, {.boot = "boot-2", .address = std::string(1'000'000, 'x')}));
  EXPECT_LE(Node("n1").refused_claim().size(), 2'000u);
}

// --- Secrets.

TEST_F(IdentityTest, ANameWithASecretIsGivenToNobodyElse) {
  Worker holder = NewProcess("n1");
  Host host;
  ASSERT_TRUE(Register(&holder, host));
  EXPECT_EQ(Answer(holder).node_secret().size(), 32u);
  EXPECT_EQ(Answer(holder).generation(), 1);
  KeepSecret(holder, &host);
  PassBeating(seconds(40), {});  // lost
  Host without = host;
  without.secret = "";
  without.generation = 0;
  Host guess = host;
  guess.secret[31] = static_cast<char>(guess.secret[31] ^ 1);
  Host wrong_generation = host;
  wrong_generation.generation = 2;
  for (const Host& claim : {without, guess, wrong_generation}) {
    Worker other = NewProcess("n1");
    EXPECT_FALSE(Register(&other, claim));
    EXPECT_EQ(ReasonOf(other), "NODE_SECRET_WRONG");
    // The uid of a process is shown to everybody: it proves nothing.
    other.uid = holder.uid;
    EXPECT_FALSE(Register(&other, claim));
  }
  EXPECT_NE(Node("n1").refused_claim().find("readmit"), std::string::npos);
  StartCore();
  Worker other = NewProcess("n1");
  EXPECT_FALSE(Register(&other, without));
  Worker next = NewProcess("n1");
  EXPECT_TRUE(Register(&next, host));
  EXPECT_EQ(Answer(next).node_secret(), "") << "unchanged";
  // The secret of one node opens no other.
  Worker elsewhere = NewProcess("n2");
  Host second;
  ASSERT_TRUE(Register(&elsewhere, second));
  KeepSecret(elsewhere, &second);
  core_->sessions().OnClosed(elsewhere.session);
  EXPECT_NE(second.secret, host.secret);
  Worker thief = NewProcess("n2");
  EXPECT_FALSE(Register(&thief, host));
}

TEST_F(IdentityTest, ASecretBindsOnceItsNodeHasWrittenItDown) {
  Worker holder = NewProcess("n1");
  Host host;
  ASSERT_TRUE(Register(&holder, host));
  const std::string given = Answer(holder).node_secret();
  // The answer was lost, or could not be written down: the same one is given again.
  core_->sessions().OnClosed(holder.session);
  ASSERT_TRUE(Register(&holder, host));
  EXPECT_EQ(Answer(holder).node_secret(), given);
  // Words about another secret than the given one change nothing.
  v1::WorkerMessage kept;
  kept.mutable_secret_kept()->set_generation(7);
  core_->sessions().OnMessage(holder.session, kept);
  core_->sessions().OnClosed(holder.session);
  EXPECT_TRUE(Register(&holder, host));
  // It was written down, but the word of it was lost: the next registration shows it.
  host.secret = given;
  host.generation = 1;
  core_->sessions().OnClosed(holder.session);
  ASSERT_TRUE(Register(&holder, host));
  core_->sessions().OnClosed(holder.session);
  EXPECT_FALSE(Register(&holder, {}));
}

TEST_F(IdentityTest, AnOlderStoreKnowsItsNodesAgain) {
  Worker holder = NewProcess("n1");
  Host host;
  ASSERT_TRUE(Register(&holder, host));
  core_.reset();
  store_.reset();
  const std::string copy = folder_ + "-copy";
  std::filesystem::copy(folder_, copy, std::filesystem::copy_options::recursive);
  StartCore();
  ASSERT_TRUE(Register(&holder, host));
  KeepSecret(holder, &host);
  // Installed anew and readmitted: the second generation.
  core_->sessions().OnClosed(holder.session);
  PassBeating(seconds(10), {});
  v1::ReadmitRequest readmit;
  readmit.set_node("n1");
  v1::Node node;
  ASSERT_TRUE(core_->api().nodes().Readmit(readmit, "operator", &node).ok());
  Worker anew = NewProcess("n1");
  Host second;
  ASSERT_TRUE(Register(&anew, second));
  KeepSecret(anew, &second);
  EXPECT_EQ(second.generation, 2);
  core_.reset();
  store_.reset();
  std::filesystem::remove_all(folder_);
  std::filesystem::rename(copy, folder_);
  StartCore();
  // The copy knew of no secret at all; both generations are right, and the newer one stays.
  ASSERT_TRUE(Register(&anew, second));
  core_->sessions().OnClosed(anew.session);
  PassBeating(seconds(10), {});
  EXPECT_FALSE(Register(&holder, host));
  EXPECT_EQ(ReasonOf(holder), "NODE_SECRET_WRONG");
}

// --- Readmission.

TEST_F(IdentityTest, AHostInstalledAnewIsReadmittedOnce) {
  Worker holder = NewProcess("n1");
  Host host;
  ASSERT_TRUE(Register(&holder, host));
  KeepSecret(holder, &host);
  const v1::Job job = StartRunning(holder, "demo", 1);
  v1::ReadmitRequest request;
  request.set_node("n1");
  request.set_reason("new disk");
  v1::Node node;
  EXPECT_EQ(rpc::ReasonOf(core_->api().nodes().Readmit(request, "operator", &node)),
            "NODE_HOLDS_RANKS");
  request.set_node("nobody");
  EXPECT_EQ(rpc::ReasonOf(core_->api().nodes().Readmit(request, "operator", &node)),
            "UNKNOWN_NODE");
  ASSERT_TRUE(Kill(job.uid()).ok());
  Gone(holder, job);
  core_->sessions().OnClosed(holder.session);
  PassBeating(seconds(10), {});
  Worker anew = NewProcess("n1");
  EXPECT_FALSE(Register(&anew, {}));
  request.set_node("n1");
  ASSERT_TRUE(core_->api().nodes().Readmit(request, "operator", &node).ok());
  Settle();
  EXPECT_EQ(node.refused_claim(), "");
  ASSERT_EQ(Events("NodeReadmitted").size(), 1u);
  EXPECT_EQ(Events("NodeReadmitted")[0].actor(), "operator");
  StartCore();  // the word is on disk
  PassBeating(seconds(10), {});
  Host installed;
  ASSERT_TRUE(Register(&anew, installed));
  EXPECT_EQ(Answer(anew).generation(), 2);
  // Until the new secret is written down the word holds, and then no longer.
  core_->sessions().OnClosed(anew.session);
  ASSERT_TRUE(Register(&anew, installed));
  KeepSecret(anew, &installed);
  core_->sessions().OnClosed(anew.session);
  PassBeating(seconds(10), {});
  EXPECT_FALSE(Register(&holder, host)) << "the secret before";
  Worker third = NewProcess("n1");
  EXPECT_FALSE(Register(&third, {}));
  EXPECT_TRUE(Register(&anew, installed));
}

TEST_F(IdentityTest, AHolderThatProvesItselfEndsTheReadmission) {
  Worker holder = NewProcess("n1");
  Host host;
  ASSERT_TRUE(Register(&holder, host));
  KeepSecret(holder, &host);
  v1::ReadmitRequest request;
  request.set_node("n1");
  v1::Node node;
  ASSERT_TRUE(core_->api().nodes().Readmit(request, "operator", &node).ok());
  Worker anew = NewProcess("n1");
  EXPECT_FALSE(Register(&anew, {})) << "the holder is heard";
  Worker forger = NewProcess("n1");
  forger.uid = holder.uid;
  EXPECT_FALSE(Register(&forger, {})) << "a uid is shown to everybody";
  core_->sessions().OnClosed(holder.session);
  ASSERT_TRUE(Register(&holder, host));
  PassBeating(seconds(40), {});
  EXPECT_FALSE(Register(&anew, {}));
  EXPECT_EQ(ReasonOf(anew), "NODE_SECRET_WRONG");
}

// --- Reports.

}  // namespace
}  // namespace mt::daemon
