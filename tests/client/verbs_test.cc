// The verbs on a job against a fake coordinator: requests, repeats after a broken connection,
// waits, exit codes.
#include <string>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/client/fake_coordinator.h"

namespace mt::client {
namespace {

using testing::HasSubstr;
using testing::Not;

class VerbsTest : public testing::Test {
 protected:
  FakeCoordinator server_;
};

TEST_F(VerbsTest, PauseSendsModeReasonAndANewRequestId) {
  const Ran held = Mtctl(&server_, {"pause", "tiny", "--reason", "lunch"});
  EXPECT_EQ(held.code, 0) << held.err;
  EXPECT_EQ(server_.state().paused.mode(), v1::PauseRequest::HOLD);
  EXPECT_EQ(server_.state().paused.reason(), "lunch");
  EXPECT_EQ(server_.state().paused.job().name(), "tiny");
  EXPECT_EQ(server_.state().paused.job().namespace_(), "default");
  EXPECT_EQ(Mtctl(&server_, {"pause", "tiny", "--release", "-n", "team"}).code, 0);
  EXPECT_EQ(server_.state().paused.mode(), v1::PauseRequest::RELEASE);
  EXPECT_EQ(server_.state().paused.job().namespace_(), "team");
  ASSERT_EQ(server_.state().request_ids.size(), 2U);
  EXPECT_EQ(server_.state().request_ids[0].size(), 36U);
  EXPECT_NE(server_.state().request_ids[0], server_.state().request_ids[1]);
  EXPECT_EQ(Mtctl(&server_, {"pause", "tiny", "--hold", "--release"}).code, kExitUsage);
  EXPECT_FALSE(server_.state().paused.discard());
  EXPECT_EQ(Mtctl(&server_, {"pause", "tiny", "--release", "--discard"}).code, 0);
  EXPECT_TRUE(server_.state().paused.discard());
  EXPECT_EQ(Mtctl(&server_, {"pause", "tiny", "--discard"}).code, kExitUsage);
}

TEST_F(VerbsTest, ResumeSaysWhatItAccepts) {
  EXPECT_EQ(Mtctl(&server_, {"resume", "tiny"}).code, 0);
  EXPECT_FALSE(server_.state().resumed.allow_older() || server_.state().resumed.fresh());
  EXPECT_EQ(Mtctl(&server_, {"resume", "tiny", "--allow-older"}).code, 0);
  EXPECT_TRUE(server_.state().resumed.allow_older() && !server_.state().resumed.fresh());
  EXPECT_EQ(Mtctl(&server_, {"resume", "tiny", "--fresh"}).code, 0);
  EXPECT_TRUE(server_.state().resumed.fresh() && !server_.state().resumed.allow_older());
  EXPECT_EQ(Mtctl(&server_, {"resume", "tiny", "--fresh", "--allow-older"}).code, kExitUsage);
}

// Each verb does its work and then loses its answer twice: it is done once and requested three
// times with one id.
TEST_F(VerbsTest, EveryVerbRepeatsWithItsRequestIdWhenTheConnectionBreaks) {
  const std::vector<std::vector<std::string>> verbs = {
      {"pause", "tiny"},        {"resume", "tiny"},        {"checkpoint", "tiny"},
      {"cancel", "tiny", "-y"}, {"kill", "tiny", "--yes"}, {"delete", "tiny", "--yes"}};
  size_t done = 0;
  for (const auto& verb : verbs) {
    server_.state().break_next = 2;
    server_.state().request_ids.clear();
    const Ran ran = Mtctl(&server_, verb);
    EXPECT_EQ(ran.code, 0) << verb[0] << ran.err;
    const auto& ids = server_.state().request_ids;
    ASSERT_EQ(ids.size(), 3U) << verb[0];
    EXPECT_EQ(ids[0], ids[1]);
    EXPECT_EQ(ids[0], ids[2]);
    EXPECT_EQ(server_.state().operations.size(), ++done) << verb[0];
    EXPECT_EQ(server_.state().operations.at(ids[0]).verb(), verb[0]);
  }
}

TEST_F(VerbsTest, RepeatsEndWithTheRequestTimeoutAndTellTheRequestId) {
  server_.state().break_next = 1'000'000;
  const Ran ran = Mtctl(&server_, {"resume", "tiny", "--request-timeout", "0.4"});
  EXPECT_EQ(ran.code, kExitConnection);
  ASSERT_GE(server_.state().request_ids.size(), 2U);
  EXPECT_THAT(ran.err, HasSubstr("connection reset by the test"));
  EXPECT_THAT(ran.err, HasSubstr("--request-id " + server_.state().request_ids[0]));
  EXPECT_EQ(ran.out, "");
}

TEST_F(VerbsTest, AGivenRequestIdFindsItsOperationAgain) {
  const std::string id = "0f8fad5b-d9cb-469f-a165-70867728950e";
  const Ran first = Mtctl(&server_, {"pause", "tiny", "--request-id", id, "-o", "name"});
  const Ran again = Mtctl(&server_, {"pause", "tiny", "--request-id", id, "-o", "name"});
  EXPECT_EQ(first.out, "operations/1\n");
  EXPECT_EQ(again.out, first.out);
}

TEST_F(VerbsTest, NoAnswerIsABadConnection) {
  server_.state().hang = true;
  const Ran ran = Mtctl(&server_, {"kill", "tiny", "--yes", "--request-timeout", "0.3"});
  EXPECT_EQ(ran.code, kExitConnection);
  EXPECT_THAT(ran.err, HasSubstr("did not answer within 0.3 s"));
}

TEST_F(VerbsTest, DestructiveVerbsNeedYesWithoutATerminal) {
  const int saved = ::dup(STDIN_FILENO);
  ASSERT_NE(::freopen("/dev/null", "r", stdin), nullptr);
  for (const char* verb : {"cancel", "kill", "delete"}) {
    const Ran ran = Mtctl(&server_, {verb, "tiny"});
    EXPECT_EQ(ran.code, kExitUsage) << verb;
    EXPECT_THAT(ran.err, HasSubstr("--yes"));
  }
  EXPECT_EQ(Mtctl(&server_, {"node", "declare-dead", "n"}).code, kExitUsage);
  EXPECT_TRUE(server_.state().request_ids.empty());
  ::dup2(saved, STDIN_FILENO);
  ::close(saved);
}

TEST_F(VerbsTest, ARefusalIsInvalidInputAndSaysWhatIsAllowed) {
  server_.state().refuse = {grpc::StatusCode::FAILED_PRECONDITION,
                            "job tiny is RUNNING; allowed: pause, checkpoint, cancel, kill"};
  const Ran ran = Mtctl(&server_, {"resume", "tiny"});
  EXPECT_EQ(ran.code, kExitInvalidInput);
  EXPECT_EQ(ran.err, "mtctl: job tiny is RUNNING; allowed: pause, checkpoint, cancel, kill\n");
  server_.state().refuse = {grpc::StatusCode::INTERNAL, "store"};
  EXPECT_EQ(Mtctl(&server_, {"resume", "tiny"}).code, kExitServer);
}

TEST_F(VerbsTest, CheckpointPrintsStepPathBytesSeconds) {
  server_.state().complete = [](v1::Operation* operation) {
    auto* checkpoint = operation->mutable_checkpoint();
    checkpoint->set_step(120);
    checkpoint->set_path("/ckpt/tiny/step-00000120-e0001");
    checkpoint->set_bytes(1258291);
    checkpoint->set_seconds(0.349);
    checkpoint->set_stall_seconds(0.2);
    checkpoint->set_tokens(98304);
    checkpoint->set_digest("xxh3:00ff");
  };
  const std::string line =
      "checkpoint of tiny: step 120, /ckpt/tiny/step-00000120-e0001, 1.2 MiB, 0.35 s";
  EXPECT_EQ(Mtctl(&server_, {"checkpoint", "tiny", "--wait"}).out, line + "\n");
  EXPECT_EQ(Mtctl(&server_, {"checkpoint", "tiny", "--wait", "-o", "wide"}).out,
            line + ", 98304 tokens, stall 0.20 s, xxh3:00ff\n");
  const Ran as_json = Mtctl(&server_, {"checkpoint", "tiny", "--wait", "-o", "json"});
  EXPECT_EQ(nlohmann::json::parse(as_json.out).at("checkpoint").at("digest"), "xxh3:00ff");
  EXPECT_EQ(Mtctl(&server_, {"checkpoint", "tiny", "-o", "none"}).out, "");
}

TEST_F(VerbsTest, AnOperationThatFailedGivesItsExitCode) {
  server_.state().complete = [](v1::Operation* operation) {
    operation->mutable_error()->set_code(static_cast<int>(absl::StatusCode::kDataLoss));
    operation->mutable_error()->set_message("no space left on device");
  };
  const Ran ran = Mtctl(&server_, {"checkpoint", "tiny", "--wait"});
  EXPECT_EQ(ran.code, kExitIo);
  EXPECT_EQ(ran.err, "mtctl: checkpoint of tiny failed: no space left on device\n");
  EXPECT_EQ(ran.out, "");
}

TEST_F(VerbsTest, WaitFollowsTheOperationToItsEndAndTimesOutWith8) {
  server_.state().operation_done = false;
  const Ran late = Mtctl(&server_, {"pause", "tiny", "--wait", "--timeout", "0.2"});
  EXPECT_EQ(late.code, kExitTimedOut);
  EXPECT_THAT(late.err, HasSubstr("mtctl get operations operations/1"));
  std::thread finish([&] {
    for (bool asked = false; !asked;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      base::MutexLock lock(&server_.state().mu);
      asked = server_.state().operations.size() > 1;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    base::MutexLock lock(&server_.state().mu);
    for (auto& [id, operation] : server_.state().operations) {
      operation.set_done(true);
      operation.set_result("held at step 42");
    }
  });
  const Ran done = Mtctl(&server_, {"resume", "tiny", "--wait"});
  finish.join();
  EXPECT_EQ(done.code, 0);
  EXPECT_EQ(done.out, "resume of tiny: held at step 42\n");
  EXPECT_EQ(Mtctl(&server_, {"wait", "operations/1"}).code, 0);
  EXPECT_EQ(Mtctl(&server_, {"wait", "operations/99"}).code, kExitInvalidInput);
}

TEST_F(VerbsTest, CtrlCLeavesTheOperationRunning) {
  server_.state().operation_done = false;
  std::thread user([&] {
    for (bool sent = false; !sent;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      base::MutexLock lock(&server_.state().mu);
      sent = !server_.state().operations.empty();
    }
    PressCtrlC(100);
  });
  const Ran ran = Mtctl(&server_, {"pause", "tiny", "--wait"});
  user.join();
  EXPECT_EQ(ran.code, kExitInterrupted);
  EXPECT_EQ(ran.err,
            "mtctl: stopped waiting; the operation goes on. Look at it: mtctl get operations "
            "operations/1\n");
}

TEST_F(VerbsTest, UpdateSendsFieldsLabelsAndWhatIsCleared) {
  server_.state().jobs = {MakeJob("tiny", v1::RUNNING)};
  const Ran ran =
      Mtctl(&server_, {"update", "tiny", "--set", "checkpoint.every_iters=10", "--set",
                       "priority=7", "--set", "resilience.deadline=none", "--label", "team=nlp",
                       "--remove-label", "old", "--clear", "checkpoint.every"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, "job tiny updated (etag e2)\n");
  const v1::UpdateJobRequest& sent = server_.state().updated;
  EXPECT_EQ(sent.changes().checkpoint().every_iters(), 10);
  EXPECT_EQ(sent.changes().priority(), 7);
  EXPECT_FALSE(sent.changes().has_name());
  EXPECT_EQ(sent.changes().labels().at("team"), "nlp");
  EXPECT_THAT(sent.remove_labels(), testing::ElementsAre("old"));
  EXPECT_THAT(sent.clear(), testing::ElementsAre("resilience.deadline", "checkpoint.every"));
  EXPECT_EQ(sent.request_id().size(), 36U);
}

TEST_F(VerbsTest, UpdateRefusesWhatItCanSeeIsWrong) {
  EXPECT_EQ(Mtctl(&server_, {"update", "tiny"}).code, kExitInvalidInput);
  const Ran typo = Mtctl(&server_, {"update", "tiny", "--set", "checkpoint.evry=1h"});
  EXPECT_EQ(typo.code, kExitInvalidInput);
  EXPECT_THAT(typo.err, HasSubstr("did you mean every?"));
  EXPECT_EQ(Mtctl(&server_, {"update", "tiny", "--label", "x"}).code, kExitInvalidInput);
  server_.state().jobs = {MakeJob("tiny", v1::RUNNING)};
  const Ran stale = Mtctl(&server_, {"update", "tiny", "--set", "priority=1", "--etag", "e0"});
  EXPECT_EQ(stale.code, kExitInvalidInput);
  EXPECT_EQ(stale.err, "mtctl: etag is e1\n");
}

TEST_F(VerbsTest, DeclareDead) {
  EXPECT_EQ(Mtctl(&server_, {"node", "declare-dead", "lost-node", "--yes"}).out,
            "node lost-node declared dead\n");
  const Ran heard = Mtctl(&server_, {"node", "declare-dead", "n1", "--yes", "--reason", "fire"});
  EXPECT_EQ(heard.code, kExitInvalidInput);
  EXPECT_EQ(heard.err, "mtctl: node n1 is heard\n");
}

TEST_F(VerbsTest, Readmit) {
  const Ran done = Mtctl(&server_, {"node", "readmit", "n1", "--reason", "new disk"});
  EXPECT_EQ(done.code, kExitOk);
  EXPECT_THAT(done.out, HasSubstr("node n1: the next worker of this name is let in"));
  EXPECT_THAT(done.out, HasSubstr("10 s"));
  const Ran busy = Mtctl(&server_, {"node", "readmit", "n1"});
  EXPECT_EQ(busy.code, kExitInvalidInput);
  EXPECT_EQ(busy.err, "mtctl: node n1 holds ranks\n");
}

TEST_F(VerbsTest, VersionWarnsOfSkewAndShowsInsecure) {
  server_.state().info.set_version("9.9.9");
  server_.state().info.set_insecure(true);
  server_.state().info.set_http_endpoint("127.0.0.1:9090");
  const Ran ran = Mtctl(&server_, {"version"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.out, HasSubstr("9.9.9 at " + server_.address() + " (insecure"));
  EXPECT_THAT(ran.out, HasSubstr("http://127.0.0.1:9090/metrics"));
  EXPECT_THAT(ran.err, HasSubstr("warning: mtctl is "));
  EXPECT_THAT(Mtctl(&server_, {"version", "--client"}).out, Not(HasSubstr("coordinator")));
  const Ran as_json = Mtctl(&server_, {"version", "-o", "json"});
  EXPECT_EQ(nlohmann::json::parse(as_json.out).at("server").at("insecure"), true);
  const Ran nobody =
      Mtctl(nullptr, {"version", "--coordinator", "127.0.0.1:1", "--connect-timeout", "0.25"});
  EXPECT_EQ(nobody.code, kExitConnection);
  EXPECT_THAT(nobody.err, HasSubstr("(waited 250 ms)"));
  EXPECT_THAT(nobody.out, HasSubstr("mtctl"));  // its own version is known regardless
}

TEST_F(VerbsTest, SubmitRepeatsWithItsRequestId) {
  const std::string path =
      testing::TempDir() + "/mt-client-submit-" + std::to_string(::getpid()) + ".yaml";
  std::FILE* file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs(
      "name: tiny\nmodel: {layers: 2, hidden_size: 32, heads: 2, seq_length: 32}\n"
      "data: {path: [text], tokenizer: {type: byte}}\n"
      "training: {train_iters: 4, micro_batch_size: 2, global_batch_size: 8}\n"
      "optimizer: {lr: 1.0e-3}\n",
      file);
  std::fclose(file);
  server_.state().break_next = 1;
  const Ran ran = Mtctl(&server_, {"submit", "-f", path, "-o", "name"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, "tiny\n");
  ASSERT_EQ(server_.state().request_ids.size(), 2U);
  EXPECT_EQ(server_.state().request_ids[0], server_.state().request_ids[1]);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace mt::client
