// The agent's parts on a real node: starting ranks under the real mt-shim, the lock of the state
// folder, reading logs.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/worker/node/ranks/node_rig.h"
#include "worker/node/gpus/numa.h"
#include "worker/node/process/log_file.h"
#include "worker/node/process/process.h"
#include "worker/node/ranks/rank_record.h"
#include "worker/node/ranks/state_dir.h"

namespace mt::node {
namespace {

TEST_F(NodeTest, LaunchesARankAndHearsOfItsEnd) {
  AsioEventLoop loop;
  ShimLauncher launcher(&loop, Config("echo \"$@\" $MT_RANK_TOKEN; exit 74"));
  ExitCatcher catcher(&loop);
  launcher.SetListener(&catcher);
  ASSERT_TRUE(launcher.Start(7, Launch()).ok());
  loop.Run();
  EXPECT_EQ(catcher.launch, 7);
  EXPECT_TRUE(catcher.exit.known);
  EXPECT_EQ(catcher.exit.code, 74);
  EXPECT_FALSE(catcher.exit.stopped);
  EXPECT_EQ(LastLines(Launch().log_file, 5),
            std::vector<std::string>{
                "--agent-socket unix:/x.sock --node node-a --job-uid job-1 --epoch 2 "
                "--rank 1 --threads 3 --state-dir " +
                Folder(1) + " secret"});
}

TEST_F(NodeTest, ARankOnAGpuIsToldOfItAndRunsBesideIt) {
  // One of the cores that this process may use.
  const std::string all = FormatCpuList(OwnCpus());
  RankLaunch launch = Launch();
  launch.gpu = "GPU-8c5c3b0e";
  launch.cpus = all.substr(0, all.find_first_of(",-"));
  AsioEventLoop loop;
  ShimLauncher launcher(&loop, Config("echo \"$@\"; grep Cpus_allowed_list: /proc/self/status"));
  ExitCatcher catcher(&loop);
  launcher.SetListener(&catcher);
  ASSERT_TRUE(launcher.Start(7, launch).ok());
  loop.Run();
  const std::vector<std::string> lines = LastLines(launch.log_file, 5);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_TRUE(lines[0].ends_with("--state-dir " + Folder(1) + " --gpu GPU-8c5c3b0e")) << lines[0];
  EXPECT_EQ(lines[1], "Cpus_allowed_list:\t" + launch.cpus);
}

TEST_F(NodeTest, RanksDoNotSeeTheServiceManager) {
  ::setenv("NOTIFY_SOCKET", "@mt-test", 1);  // NOLINT(concurrency-mt-unsafe): one thread
  ::setenv("WATCHDOG_USEC", "1000", 1);      // NOLINT(concurrency-mt-unsafe): one thread
  AsioEventLoop loop;
  ShimLauncher launcher(&loop, Config("echo \"[$NOTIFY_SOCKET$WATCHDOG_USEC]\""));
  ExitCatcher catcher(&loop);
  launcher.SetListener(&catcher);
  const Status started = launcher.Start(7, Launch());
  ::unsetenv("NOTIFY_SOCKET");  // NOLINT(concurrency-mt-unsafe): one thread
  ::unsetenv("WATCHDOG_USEC");  // NOLINT(concurrency-mt-unsafe): one thread
  ASSERT_TRUE(started.ok()) << started;
  loop.Run();
  EXPECT_EQ(LastLines(Launch().log_file, 5), std::vector<std::string>{"[]"});
}

TEST_F(NodeTest, KillEndsTheRankAtOnce) {
  AsioEventLoop loop;
  ShimLauncher launcher(&loop, Config("trap '' TERM; sleep 600"));
  ExitCatcher catcher(&loop);
  launcher.SetListener(&catcher);
  ASSERT_TRUE(launcher.Start(1, Launch()).ok());
  Await(Folder(1) + "/rank.json");
  launcher.Kill(1);
  loop.Run();
  EXPECT_EQ(catcher.exit.signal, SIGKILL);
  EXPECT_TRUE(catcher.exit.stopped);
}

TEST_F(NodeTest, AShimThatIsKilledCostsTheStatusOnly) {
  AsioEventLoop loop;
  ShimLauncher launcher(
      &loop, Config("trap ': > asked; exit 0' TERM; : > up; while true; do sleep 0.01; done"));
  ExitCatcher catcher(&loop);
  launcher.SetListener(&catcher);
  ASSERT_TRUE(launcher.Start(1, Launch()).ok());
  Await(Folder(1) + "/rank.json");
  Await(dir_ + "/up");
  const RankRecord record = ReadRankRecord(Folder(1)).value();
  ASSERT_EQ(::kill(record.shim_pid, SIGKILL), 0);
  // The rank goes on until it is told to end, now by the launcher itself.
  loop.After(std::chrono::milliseconds(300), [&] {
    EXPECT_TRUE(IsAlive(record.pid, record.start_ticks));
    launcher.Terminate(1);
  });
  loop.Run();
  EXPECT_FALSE(catcher.exit.known);
  EXPECT_NE(catcher.exit.error.find("signal 9"), std::string::npos) << catcher.exit.error;
  EXPECT_FALSE(IsAlive(record.pid, record.start_ticks));
  EXPECT_TRUE(base::Exists(dir_ + "/asked"));
}

TEST_F(NodeTest, TheEndOfTheLauncherEndsARankThatIsToStopWithIt) {
  RankRecord record;
  {
    AsioEventLoop loop;
    ShimLauncher launcher(&loop, Config("exec sleep 600"));
    RankLaunch launch = Launch();
    launch.stop_with_agent = true;
    ASSERT_TRUE(launcher.Start(1, launch).ok());
    Await(Folder(1) + "/rank.json");
    record = ReadRankRecord(Folder(1)).value();
    EXPECT_TRUE(IsAlive(record.pid, record.start_ticks));
  }
  ASSERT_EQ(::waitpid(record.shim_pid, nullptr, 0), record.shim_pid);
  EXPECT_FALSE(IsAlive(record.pid, record.start_ticks));
  EXPECT_EQ(ReadExitRecord(Folder(1)).value().signal, SIGTERM);
  EXPECT_TRUE(ReadExitRecord(Folder(1)).value().stopped);
}

TEST_F(NodeTest, LogsAreForTheOwnerAndTheGroupAndMended) {
  const auto mode = [](const std::string& path) {
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 07777U;
  };
  const std::string log = Launch().log_file;
  const std::string folder = std::filesystem::path(log).parent_path().string();
  // As an older agent left them.
  std::filesystem::create_directories(folder);
  std::ofstream(log) << "earlier\n";
  ASSERT_EQ(::chmod(log.c_str(), 0666), 0);
  ASSERT_EQ(::chmod(folder.c_str(), 0777), 0);
  AsioEventLoop loop;
  ShimLauncher launcher(&loop, Config("echo later"));
  ExitCatcher catcher(&loop);
  launcher.SetListener(&catcher);
  ASSERT_TRUE(launcher.Start(1, Launch()).ok());
  loop.Run();
  EXPECT_EQ(mode(log), 0640U);
  EXPECT_EQ(mode(folder), 0750U);
  EXPECT_EQ(mode(Folder(1)), 0700U);
  // Reading mends, too, and gives nothing back that the owner has taken.
  ASSERT_EQ(::chmod(log.c_str(), 0644), 0);
  ASSERT_EQ(::chmod(folder.c_str(), 0700), 0);
  EXPECT_EQ(LastLines(log, 5), (std::vector<std::string>{"earlier", "later"}));
  EXPECT_EQ(mode(log), 0640U);
  EXPECT_EQ(mode(folder), 0700U);
}

TEST_F(NodeTest, AnAllocationFolderThatWasOpenIsClosed) {
  std::filesystem::create_directories(dir_ + "/state/allocations");
  ASSERT_EQ(::chmod((dir_ + "/state/allocations").c_str(), 0755), 0);
  ASSERT_TRUE(StateDir::Open(dir_ + "/state").ok());
  for (const char* folder : {"/state", "/state/allocations"}) {
    EXPECT_EQ(std::filesystem::status(dir_ + folder).permissions(),
              std::filesystem::perms::owner_all)
        << folder;
  }
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

TEST_F(NodeTest, SocketPathFitsTheKernel) {
  const StateDir near = StateDir::Open(dir_ + "/state").value();
  EXPECT_EQ(near.SocketPath().value(), dir_ + "/state/agent.sock");
  const StateDir deep = StateDir::Open(dir_ + "/" + std::string(120, 'd')).value();
  ::setenv("XDG_RUNTIME_DIR", dir_.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  const auto path = deep.SocketPath();
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_LT(path->size(), 108u);
  EXPECT_EQ(path->rfind(dir_ + "/megatrain/", 0), 0u);
  // A folder that others can enter is refused.
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
}  // namespace mt::node
