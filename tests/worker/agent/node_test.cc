// What the agent does on a real node: starts ranks under the real mt-shim, guards its folder, ends
// what a dead agent left.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "worker/agent/asio_event_loop.h"
#include "worker/agent/log_file.h"
#include "worker/agent/rank_record.h"
#include "worker/agent/shim_launcher.h"
#include "worker/agent/state_dir.h"

namespace mt::agent {
namespace {

class NodeTest : public testing::Test {
 protected:
  NodeTest() {
    char pattern[] = "/tmp/mt-node-test-XXXXXX";
    dir_ = mkdtemp(pattern);
  }
  ~NodeTest() override { std::filesystem::remove_all(dir_); }

  // A program that stands in for mt-rank.
  std::string Script(const std::string& body) {
    const std::string path = dir_ + "/rank.sh";
    std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  RankLaunch Launch() {
    return {.job_uid = "job-1",
            .epoch = 2,
            .rank = 1,
            .slot = 1,
            .threads = 3,
            .folder = dir_ + "/ranks/r1",
            .log_file = dir_ + "/logs/demo/rank-00001.log",
            .token = "secret"};
  }
  std::string dir_;
};

// Field 22 of /proc/PID/stat.
int64_t StartTicksOf(pid_t pid) {
  const std::string stat = base::ReadFile(fmt::format("/proc/{}/stat", pid)).value_or("");
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  return std::stoll(field);
}

class ExitCatcher final : public RankLauncher::Listener {
 public:
  explicit ExitCatcher(AsioEventLoop* loop) : loop_(loop) {}
  void OnRankGone(LaunchId launch_id, const RankExit& rank_exit) override {
    launch = launch_id;
    exit = rank_exit;
    loop_->Stop();
  }
  LaunchId launch = 0;
  RankExit exit;

 private:
  AsioEventLoop* loop_;
};

TEST_F(NodeTest, LaunchesARankAndHearsOfItsEnd) {
  AsioEventLoop loop;
  ShimLauncher launcher(&loop, {.shim_binary = MT_SHIM_BINARY,
                                .rank_binary = Script("echo \"$@\" $MT_RANK_TOKEN; exit 74"),
                                .socket = "unix:/x.sock"});
  ExitCatcher catcher(&loop);
  launcher.SetListener(&catcher);
  loop.OnSignal(SIGCHLD, [&launcher] { launcher.ReapChildren(); });
  ASSERT_TRUE(launcher.Start(7, Launch()).ok());
  loop.Run();
  EXPECT_EQ(catcher.launch, 7);
  EXPECT_TRUE(catcher.exit.known);
  EXPECT_EQ(catcher.exit.code, 74);
  EXPECT_EQ(LastLines(Launch().log_file, 5),
            std::vector<std::string>{"--agent-socket unix:/x.sock --job-uid job-1 --epoch 2 "
                                     "--rank 1 --threads 3 secret"});
  EXPECT_FALSE(base::Exists(Launch().folder));
}

TEST_F(NodeTest, KillEndsTheRankAtOnce) {
  AsioEventLoop loop;
  ShimLauncher launcher(&loop, {.shim_binary = MT_SHIM_BINARY,
                                .rank_binary = Script("trap '' TERM; sleep 600"),
                                .socket = "unix:/x.sock",
                                .grace_ms = 600000});
  ExitCatcher catcher(&loop);
  launcher.SetListener(&catcher);
  loop.OnSignal(SIGCHLD, [&launcher] { launcher.ReapChildren(); });
  ASSERT_TRUE(launcher.Start(1, Launch()).ok());
  while (!base::Exists(Launch().folder + "/rank.json")) ::usleep(2000);
  launcher.Kill(1);
  loop.Run();
  EXPECT_EQ(catcher.exit.signal, SIGKILL);
}

TEST_F(NodeTest, AShimThatIsKilledCostsTheStatusNotTheCleanUp) {
  AsioEventLoop loop;
  ShimLauncher launcher(&loop, {.shim_binary = MT_SHIM_BINARY,
                                .rank_binary = Script("exec sleep 600"),
                                .socket = "unix:/x.sock"});
  ExitCatcher catcher(&loop);
  launcher.SetListener(&catcher);
  loop.OnSignal(SIGCHLD, [&launcher] { launcher.ReapChildren(); });
  ASSERT_TRUE(launcher.Start(1, Launch()).ok());
  while (!base::Exists(Launch().folder + "/rank.json")) ::usleep(2000);
  const RankRecord record = ReadRankRecord(Launch().folder).value();
  ASSERT_EQ(::kill(record.shim_pid, SIGKILL), 0);
  loop.Run();
  EXPECT_FALSE(catcher.exit.known);
  EXPECT_NE(catcher.exit.error.find("signal 9"), std::string::npos) << catcher.exit.error;
  while (IsAlive(record.pid, record.start_ticks)) ::usleep(2000);
}

TEST_F(NodeTest, TheEndOfTheLauncherEndsItsRanks) {
  RankRecord record;
  {
    AsioEventLoop loop;
    ShimLauncher launcher(&loop, {.shim_binary = MT_SHIM_BINARY,
                                  .rank_binary = Script("exec sleep 600"),
                                  .socket = "unix:/x.sock"});
    ASSERT_TRUE(launcher.Start(1, Launch()).ok());
    while (!base::Exists(Launch().folder + "/rank.json")) ::usleep(2000);
    record = ReadRankRecord(Launch().folder).value();
    EXPECT_TRUE(IsAlive(record.pid, record.start_ticks));
  }
  ASSERT_EQ(::waitpid(record.shim_pid, nullptr, 0), record.shim_pid);
  EXPECT_FALSE(IsAlive(record.pid, record.start_ticks));
  EXPECT_EQ(ReadExitRecord(Launch().folder).value().signal, SIGTERM);
}

TEST_F(NodeTest, OneAgentPerStateFolder) {
  auto first = StateDir::Open(dir_ + "/state");
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = StateDir::Open(dir_ + "/state");
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(base::Message(second.status()),
            "another mt-worker uses the state folder " + dir_ + "/state");
  { const StateDir gone = std::move(first).value(); }
  EXPECT_TRUE(StateDir::Open(dir_ + "/state").ok());
}

TEST_F(NodeTest, SweepsWhatADeadAgentLeft) {
  StateDir state = StateDir::Open(dir_ + "/state").value();
  const std::string folder = state.rank_folders() + "/job-1-e0001-r00000";
  ASSERT_TRUE(base::MakeDirs(folder).ok());
  // A process in a group of its own stands for a rank and its shim, whose agent is gone.
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::setpgid(0, 0);
    ::pause();
    ::_exit(0);
  }
  ::setpgid(pid, pid);
  std::thread reaper([pid] { ::waitpid(pid, nullptr, 0); });
  const int64_t ticks = StartTicksOf(pid);
  ASSERT_TRUE(IsAlive(pid, ticks));
  const std::string json = fmt::format(
      R"({{"pid": {0}, "start_ticks": {1}, "shim_pid": {0}, "shim_start_ticks": {1}, "boot_id": "{2}"}})",
      pid, ticks, base::BootId());
  ASSERT_TRUE(base::WriteFileAtomic(folder + "/rank.json", json).ok());
  const auto swept = state.SweepLeftovers(std::chrono::seconds(60));
  ASSERT_TRUE(swept.ok()) << swept.status();
  EXPECT_EQ(*swept, 1);
  EXPECT_FALSE(IsAlive(pid, ticks));
  EXPECT_FALSE(base::Exists(folder));
  reaper.join();
}

TEST_F(NodeTest, DoesNotTouchAProcessThatOnlyHasTheNumber) {
  StateDir state = StateDir::Open(dir_ + "/state").value();
  const std::string folder = state.rank_folders() + "/job-1-e0001-r00000";
  ASSERT_TRUE(base::MakeDirs(folder).ok());
  // This test's own pid, with another start time: it would not survive a mistake.
  const std::string json = fmt::format(
      R"({{"pid": {0}, "start_ticks": 1, "shim_pid": {0}, "shim_start_ticks": 1, "boot_id": "{1}"}})",
      ::getpid(), base::BootId());
  ASSERT_TRUE(base::WriteFileAtomic(folder + "/rank.json", json).ok());
  EXPECT_EQ(state.SweepLeftovers(std::chrono::seconds(60)).value(), 0);
  EXPECT_FALSE(base::Exists(folder));
}

TEST_F(NodeTest, SocketPathFitsTheKernel) {
  const StateDir near = StateDir::Open(dir_ + "/state").value();
  EXPECT_EQ(near.SocketPath().value(), dir_ + "/state/agent.sock");
  const StateDir deep = StateDir::Open(dir_ + "/" + std::string(120, 'd')).value();
  ::setenv("XDG_RUNTIME_DIR", dir_.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  const auto path = deep.SocketPath();
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_LT(path->size(), 108u);
  EXPECT_EQ(path->rfind(dir_ + "/megatrain/", 0), 0u);
  // A folder that others can enter is not used.
  ::chmod((dir_ + "/megatrain").c_str(), 0777);
  EXPECT_FALSE(deep.SocketPath().ok());
}

TEST_F(NodeTest, ReadsLastLines) {
  const std::string path = dir_ + "/log";
  EXPECT_TRUE(LastLines(path, 3).empty());
  {
    std::ofstream file(path);
    for (int i = 0; i < 5000; ++i) file << "line " << i << '\n';
    file << "unfinished";
  }
  EXPECT_EQ(LastLines(path, 2), (std::vector<std::string>{"line 4999", "unfinished"}));
  const auto many = LastLines(path, 4000);  // more than one block of the file
  ASSERT_EQ(many.size(), 4000u);
  EXPECT_EQ(many.front(), "line 1001");
  EXPECT_EQ(LastLines(path, 100000).size(), 5001u);
}

}  // namespace
}  // namespace mt::agent
