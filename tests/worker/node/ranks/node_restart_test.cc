// Ranks that outlive their agent: the agent is a process of its own here, killed with SIGKILL; what
// it has started (the real mt-shim, around small shell programs) is taken over or ended.
#include <csignal>
#include <functional>
#include <sys/wait.h>

#include <gtest/gtest.h>

#include "common/base/ids.h"
#include "tests/worker/node/ranks/node_rig.h"
#include "worker/node/process/process.h"
#include "worker/node/ranks/rank_record.h"
#include "worker/node/ranks/stop_ranks.h"

namespace mt::node {
namespace {

// A script that exits with 7 on SIGTERM.
constexpr char kPolite[] = "trap 'exit 7' TERM; : > up; while true; do sleep 0.01; done";

class RestartTest : public NodeTest {
 protected:
  // An agent process that runs `act` and is then killed, once `ready` exists.
  void LiveAndDie(const ShimLauncher::Config& config, const std::string& ready,
                  const std::function<void(ShimLauncher*)>& act) {
    const pid_t agent = ::fork();
    ASSERT_GE(agent, 0);
    if (agent == 0) {
      AsioEventLoop loop;
      ShimLauncher launcher(&loop, config);
      ExitCatcher catcher(&loop);
      launcher.SetListener(&catcher);
      act(&launcher);
      loop.Run();
      ::_exit(0);
    }
    Await(ready);
    ASSERT_EQ(::kill(agent, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(agent, &status, 0), agent);
    ASSERT_TRUE(WIFSIGNALED(status));
  }
  void StartAndDie(const std::string& script, bool stop_with_agent = false) {
    LiveAndDie(Config(script), Folder(1) + "/rank.json", [&](ShimLauncher* launcher) {
      RankLaunch launch = Launch();
      launch.stop_with_agent = stop_with_agent;
      if (!launcher->Start(1, launch).ok()) ::_exit(1);
    });
    record_ = ReadRankRecord(Folder(1)).value_or(RankRecord{});
  }
  // Takes the rank over, runs `act`, and waits for its end.
  RankExit AdoptAndAwait(const std::function<void(ShimLauncher*)>& act = {}) {
    AsioEventLoop loop;
    ShimLauncher launcher(&loop, Config("exit 99"));
    ExitCatcher catcher(&loop);
    launcher.SetListener(&catcher);
    adopted_pid_ = launcher.Adopt(3, Folder(1));
    if (act) act(&launcher);
    loop.Run();
    EXPECT_EQ(catcher.launch, 3);
    return catcher.exit;
  }
  bool RankLives() const { return IsAlive(record_.pid, record_.start_ticks); }
  void Touch(const std::string& name) { std::ofstream(dir_ + "/" + name).flush(); }

  RankRecord record_;
  int adopted_pid_ = -1;
};

TEST_F(RestartTest, ALivingRankIsTakenOver) {
  StartAndDie(kPolite);
  Await(dir_ + "/up");
  ASSERT_TRUE(RankLives());
  const RankExit exit = AdoptAndAwait([](ShimLauncher* launcher) { launcher->Terminate(3); });
  EXPECT_EQ(adopted_pid_, record_.pid);
  EXPECT_TRUE(exit.known);
  EXPECT_EQ(exit.code, 7);
  EXPECT_TRUE(exit.stopped);
}

TEST_F(RestartTest, TheEndWhileNobodyWatchedIsTold) {
  StartAndDie(
      "while [ ! -e go ]; do sleep 0.01; done; for dir; do :; done; "
      "printf 'last words' > $dir/unsent.pb; exit 74");
  Touch("go");
  Await(Folder(1) + "/exit.json");
  const RankExit exit = AdoptAndAwait();
  EXPECT_TRUE(exit.known);
  EXPECT_EQ(exit.code, 74);
  EXPECT_FALSE(exit.stopped);
  EXPECT_EQ(exit.unsent, "last words");
}

TEST_F(RestartTest, TwoRestartsInARow) {
  StartAndDie(kPolite);
  Await(dir_ + "/up");
  LiveAndDie(Config("exit 99"), dir_ + "/adopted", [this](ShimLauncher* launcher) {
    if (launcher->Adopt(9, Folder(1)) == record_.pid) Touch("adopted");
  });
  ASSERT_TRUE(RankLives());
  const RankExit exit = AdoptAndAwait([](ShimLauncher* launcher) { launcher->Kill(3); });
  EXPECT_EQ(adopted_pid_, record_.pid);
  EXPECT_EQ(exit.signal, SIGKILL);
}

TEST_F(RestartTest, PolicyStopEndsTheRankWithItsAgent) {
  StartAndDie("exec sleep 600", /*stop_with_agent=*/true);
  const RankExit exit = AdoptAndAwait();
  EXPECT_FALSE(RankLives());
  EXPECT_EQ(exit.signal, SIGTERM);
  EXPECT_TRUE(exit.stopped);
}

TEST_F(RestartTest, WithoutShimTheRankItselfIsWatched) {
  StartAndDie("while [ ! -e go ]; do sleep 0.01; done");
  ASSERT_EQ(::kill(record_.shim_pid, SIGKILL), 0);
  while (IsAlive(record_.shim_pid, record_.shim_start_ticks)) ::usleep(2000);
  ASSERT_TRUE(RankLives());
  const RankExit exit = AdoptAndAwait([this](ShimLauncher*) { Touch("go"); });
  EXPECT_FALSE(exit.known);
  EXPECT_EQ(exit.error, "its mt-shim ended before it");
  EXPECT_FALSE(RankLives());
}

TEST_F(RestartTest, LeftoversOfAnotherBootAreGone) {
  ASSERT_TRUE(base::MakeDirs(Folder(1)).ok());
  // The pid of this test itself, so that a mistake kills it.
  const std::string json = fmt::format(
      R"({{"pid": {0}, "start_ticks": {1}, "shim_pid": {0}, "shim_start_ticks": {1}, "boot_id": "x"}})",
      ::getpid(), StartTicks(::getpid()));
  ASSERT_TRUE(base::WriteFileAtomic(Folder(1) + "/rank.json", json).ok());
  const RankExit exit = AdoptAndAwait([](ShimLauncher* launcher) { launcher->Kill(3); });
  EXPECT_FALSE(exit.known);
  EXPECT_EQ(exit.error, "its node was started anew");
}

TEST_F(RestartTest, AProcessThatOnlyHasTheNumberIsNotTouched) {
  ASSERT_TRUE(base::MakeDirs(Folder(1)).ok());
  const std::string json = fmt::format(
      R"({{"pid": {0}, "start_ticks": 1, "shim_pid": {0}, "shim_start_ticks": 1, "boot_id": "{1}"}})",
      ::getpid(), base::BootId());
  ASSERT_TRUE(base::WriteFileAtomic(Folder(1) + "/rank.json", json).ok());
  const RankExit exit = AdoptAndAwait([](ShimLauncher* launcher) { launcher->Kill(3); });
  EXPECT_FALSE(exit.known);
}

TEST_F(RestartTest, ARankWhoseRecordCannotBeReadIsFoundAndEnded) {
  StartAndDie("exec sleep 600");
  ASSERT_TRUE(RankLives());
  ASSERT_TRUE(base::WriteFileAtomic(Folder(1) + "/rank.json", "{\"pid\": ").ok());
  const RankExit exit = AdoptAndAwait();
  EXPECT_EQ(adopted_pid_, 0);
  EXPECT_FALSE(RankLives());
  EXPECT_FALSE(exit.known);
  EXPECT_NE(exit.error.find("rank.json: not a JSON object"), std::string::npos) << exit.error;
}

TEST_F(RestartTest, AnExitThatCannotBeReadIsNotKnown) {
  StartAndDie("while [ ! -e go ]; do sleep 0.01; done; exit 3");
  Touch("go");
  Await(Folder(1) + "/exit.json");
  ASSERT_TRUE(base::WriteFileAtomic(Folder(1) + "/exit.json", "garbage").ok());
  const RankExit exit = AdoptAndAwait();
  EXPECT_FALSE(exit.known);
  EXPECT_EQ(exit.error, "its exit.json cannot be read");
}

TEST_F(RestartTest, ARankThatWasNeverStartedIsSaidSoAndCannotStartLater) {
  RankExit exit = AdoptAndAwait();  // there is not even a folder
  EXPECT_EQ(exit.error, "its worker agent ended before it was started");
  ASSERT_TRUE(base::MakeDirs(Folder(1)).ok());
  ASSERT_TRUE(base::MakeDirs(dir_ + "/logs/demo").ok());
  exit = AdoptAndAwait();
  EXPECT_EQ(exit.error, "its worker agent ended before it was started");
  // A shim of the dead agent that goes on only now cannot record a rank, so it must not run one.
  const std::string program = Script(": > ran.$$; exec sleep 600");
  const pid_t shim = ::fork();
  if (shim == 0) {
    ::execl(MT_SHIM_BINARY, MT_SHIM_BINARY, "--dir", Folder(1).c_str(), "--log",
            Launch().log_file.c_str(), "--job", "job-1", "--epoch", "2", "--rank", "1", "--slot",
            "1", "--", program.c_str(), nullptr);
    ::_exit(99);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(shim, &status, 0), shim);
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_TRUE(FindByArgument("--dir", Folder(1)).empty());
}

TEST_F(RestartTest, StopRanksEndsAllOfThem) {
  // Rank 0 leaves when asked, rank 1 has to be killed.
  const std::string script =
      "case \"$*\" in *'--rank 0 '*) trap 'exit 7' TERM;; *) trap '' TERM;; esac; "
      ": > up.$$; while true; do sleep 0.01; done";
  const auto start = [&](int rank, int grace_ms) {
    LiveAndDie(Config(script, grace_ms), Folder(rank) + "/rank.json", [&](ShimLauncher* launcher) {
      if (!launcher->Start(rank + 1, Launch(rank)).ok()) ::_exit(1);
    });
    const RankRecord record = ReadRankRecord(Folder(rank)).value();
    Await(fmt::format("{}/up.{}", dir_, record.pid));
    return record;
  };
  const RankRecord first = start(0, /*grace_ms=*/600'000);  // however long it takes to leave
  const RankRecord second = start(1, /*grace_ms=*/200);
  // Longer than the first one may take; the second one's shim kills it before.
  const auto stopped = StopRanks(dir_, std::chrono::seconds(60));
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  ASSERT_EQ(stopped->size(), 2u);
  EXPECT_EQ((*stopped)[0].job_uid, "job-1");
  EXPECT_EQ((*stopped)[0].pid, first.pid);
  EXPECT_FALSE((*stopped)[0].killed);
  EXPECT_EQ((*stopped)[1].rank, 1);
  EXPECT_TRUE((*stopped)[1].killed);
  EXPECT_FALSE(IsAlive(first.pid, first.start_ticks) || IsAlive(second.pid, second.start_ticks));
  EXPECT_TRUE(StopRanks(dir_, std::chrono::milliseconds(200)).value().empty());
  EXPECT_EQ(ReadExitRecord(Folder(0)).value().code, 7);  // left for the next agent
}

TEST_F(RestartTest, StopRanksEndsARankWithoutShim) {
  StartAndDie(kPolite);
  Await(dir_ + "/up");
  ASSERT_EQ(::kill(record_.shim_pid, SIGKILL), 0);
  while (IsAlive(record_.shim_pid, record_.shim_start_ticks)) ::usleep(2000);
  const auto stopped = StopRanks(dir_, std::chrono::seconds(60));
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  ASSERT_EQ(stopped->size(), 1u);
  EXPECT_FALSE(RankLives());
}

}  // namespace
}  // namespace mt::node
