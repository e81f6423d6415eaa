// The real mt-shim around small shell programs: what it records, what it stops, what it leaves
// behind.
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sched.h>
#include <spawn.h>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/base/ids.h"

namespace mt::node {
namespace {

using nlohmann::json;

class ShimTest : public testing::Test {
 protected:
  ShimTest() {
    char pattern[] = "/tmp/mt-shim-test-XXXXXX";
    dir_ = mkdtemp(pattern);
  }
  ~ShimTest() override {
    stop_pipe_.Reset();
    if (shim_ > 0) Wait();
    std::filesystem::remove_all(dir_);
  }

  std::string Path(const std::string& name) const { return dir_ + "/" + name; }

  // Starts the shim around `program`; the test holds the write end of its pipe, as the agent does.
  void Start(std::vector<std::string> program, const std::string& grace_ms = "60000",
             std::string log = "", const std::vector<std::string>& options = {}) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    stop_pipe_.Reset(ends[1]);
    const base::Fd read_end(ends[0]);
    if (log.empty()) log = Path("rank.log");
    std::vector<std::string> args = {
        MT_SHIM_BINARY, "--dir",   dir_, "--log",  log, "--stop-fd", "9", "--job",
        "job-1",        "--epoch", "4",  "--rank", "2", "--slot",    "1", "--grace-ms",
        grace_ms};
    args.insert(args.end(), options.begin(), options.end());
    args.push_back("--");
    args.insert(args.end(), program.begin(), program.end());
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, read_end.get(), 9);
    ASSERT_EQ(posix_spawn(&shim_, MT_SHIM_BINARY, &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  void StartScript(const std::string& script, const std::string& grace_ms = "60000",
                   const std::vector<std::string>& options = {}) {
    Start({"/bin/sh", "-c", script}, grace_ms, "", options);
  }

  // The shim's own exit code.
  int Wait() {
    int status = 0;
    EXPECT_EQ(::waitpid(shim_, &status, 0), shim_);
    shim_ = -1;
    EXPECT_TRUE(WIFEXITED(status));
    return WEXITSTATUS(status);
  }

  json ReadJson(const std::string& name) const {
    const auto text = base::ReadFile(Path(name));
    EXPECT_TRUE(text.ok()) << text.status();
    return text.ok() ? json::parse(*text) : json();
  }
  std::string ReadText(const std::string& name) const {
    return base::ReadFile(Path(name)).value_or("");
  }
  // Blocks until the script has made the file whole (scripts write "x.tmp", then mv).
  std::string Await(const std::string& name) const {
    while (!base::Exists(Path(name))) ::usleep(2000);
    return ReadText(name);
  }
  static bool Alive(const std::string& pid) { return ::kill(std::stoi(pid), 0) == 0; }

  std::string dir_;
  pid_t shim_ = -1;
  base::Fd stop_pipe_;
};

TEST_F(ShimTest, TheRankRunsOnTheCoresThatAreNamed) {
  cpu_set_t own;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(own), &own), 0);
  size_t core = 0;
  while (!CPU_ISSET(core, &own)) ++core;
  const std::string name = std::to_string(core);
  StartScript("grep Cpus_allowed_list: /proc/self/status", "60000", {"--cpus", name + "-" + name});
  EXPECT_EQ(Wait(), 0);
  EXPECT_EQ(*base::ReadFile(Path("rank.log")), "Cpus_allowed_list:\t" + name + "\n");
}

TEST_F(ShimTest, CoresThatAreNotHereCostNothing) {
  StartScript("exit 7", "60000", {"--cpus", "1000,1010-1023"});
  EXPECT_EQ(Wait(), 0);
  EXPECT_EQ(ReadJson("exit.json").at("code"), 7);
}

TEST_F(ShimTest, AListOfCoresIsChecked) {
  for (const char* bad : {"", "x", "3-1", "1,", "1-", "0-99999"}) {
    StartScript("exit 0", "60000", {"--cpus", bad});
    EXPECT_EQ(Wait(), 2) << bad;
  }
}

TEST_F(ShimTest, RecordsTheExitCode) {
  StartScript("echo out; echo err >&2; exit 74");
  EXPECT_EQ(Wait(), 0);
  const json exit = ReadJson("exit.json");
  EXPECT_EQ(exit["code"], 74);
  EXPECT_EQ(exit["signal"], 0);
  EXPECT_EQ(exit["stop"], "none");
  EXPECT_EQ(exit["error"], "");
  EXPECT_GT(exit["max_rss_bytes"].get<int64_t>(), 0);
  EXPECT_EQ(ReadText("rank.log"), "out\nerr\n");
}

TEST_F(ShimTest, RecordsTheSignal) {
  StartScript("ulimit -c 0; kill -SEGV $$");
  EXPECT_EQ(Wait(), 0);
  const json exit = ReadJson("exit.json");
  EXPECT_EQ(exit["code"], 0);
  EXPECT_EQ(exit["signal"], SIGSEGV);
  EXPECT_EQ(exit["core"], false);
}

TEST_F(ShimTest, RecordsWhoRuns) {
  StartScript("exec sleep 600");
  const json rank = json::parse(Await("rank.json"));
  EXPECT_EQ(rank["job_uid"], "job-1");
  EXPECT_EQ(rank["epoch"], 4);
  EXPECT_EQ(rank["rank"], 2);
  EXPECT_EQ(rank["slot"], 1);
  EXPECT_EQ(rank["shim_pid"], shim_);
  EXPECT_EQ(rank["boot_id"], base::BootId());
  const pid_t pid = rank["pid"];
  EXPECT_EQ(::getpgid(pid), pid);   // a group of its own
  EXPECT_EQ(::getsid(pid), shim_);  // in the shim's session
  const std::string stat = base::ReadFile("/proc/" + std::to_string(pid) + "/stat").value_or("");
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  EXPECT_EQ(rank["start_ticks"], std::stoll(field));
  EXPECT_FALSE(base::Exists(Path("exit.json")));
}

TEST_F(ShimTest, EndOfThePipeEndsTheGroupAndItsDescendants) {
  // One child in the group, one in a session of its own whose parent is gone; both ignore SIGTERM.
  const std::string here = "cd " + dir_ + "; ";
  StartScript(here +
                  "trap '' TERM; sleep 600 & echo $! > a; "
                  "(setsid sh -c 'echo $$ > b.tmp; mv b.tmp b; exec sleep 600' &) ; "
                  "while [ ! -e b ]; do sleep 0.01; done; echo $$ > c.tmp; mv c.tmp c; "
                  "while true; do sleep 600; done",
              "100");
  const std::string leader = Await("c");
  const std::string in_group = ReadText("a");
  const std::string in_session = ReadText("b");
  ASSERT_TRUE(Alive(leader) && Alive(in_group) && Alive(in_session));
  stop_pipe_.Reset();
  EXPECT_EQ(Wait(), 0);
  EXPECT_FALSE(Alive(leader));
  EXPECT_FALSE(Alive(in_group));
  EXPECT_FALSE(Alive(in_session));
  const json exit = ReadJson("exit.json");
  EXPECT_EQ(exit["signal"], SIGKILL);  // after the grace
  EXPECT_EQ(exit["stop"], "agent_gone");
}

TEST_F(ShimTest, SigtermIsPassedOnFirst) {
  StartScript("cd " + dir_ + "; trap 'exit 5' TERM; : > up; while true; do sleep 0.02; done");
  Await("up");
  ASSERT_EQ(::kill(shim_, SIGTERM), 0);
  EXPECT_EQ(Wait(), 0);
  const json exit = ReadJson("exit.json");
  EXPECT_EQ(exit["code"], 5);
  EXPECT_EQ(exit["stop"], "signal");
}

TEST_F(ShimTest, SigquitKillsAtOnce) {
  StartScript("cd " + dir_ + "; trap '' TERM; : > up; while true; do sleep 0.02; done");
  Await("up");
  ASSERT_EQ(::kill(shim_, SIGQUIT), 0);
  EXPECT_EQ(Wait(), 0);
  EXPECT_EQ(ReadJson("exit.json")["signal"], SIGKILL);
}

TEST_F(ShimTest, LeftoversOfARankThatEndedByItselfAreSwept) {
  StartScript("cd " + dir_ +
              "; (setsid sh -c 'echo $$ > b.tmp; mv b.tmp b; exec sleep 600' &) ; "
              "while [ ! -e b ]; do sleep 0.01; done; exit 3");
  EXPECT_EQ(Wait(), 0);
  EXPECT_FALSE(Alive(ReadText("b")));
  EXPECT_EQ(ReadJson("exit.json")["code"], 3);
  EXPECT_EQ(ReadJson("exit.json")["stop"], "none");
}

TEST_F(ShimTest, WhenMemoryRunsOutTheRankGoesFirst) {
  StartScript("cat /proc/self/oom_score_adj");
  EXPECT_EQ(Wait(), 0);
  EXPECT_EQ(ReadText("rank.log"), "500\n");
}

TEST_F(ShimTest, WhatItWritesIsClosedToOthers) {
  const mode_t before = ::umask(0);
  StartScript("true");
  EXPECT_EQ(Wait(), 0);
  ::umask(before);
  const auto mode = [this](const std::string& name) {
    struct stat info {};
    EXPECT_EQ(::stat(Path(name).c_str(), &info), 0) << name;
    return info.st_mode & 07777U;
  };
  EXPECT_EQ(mode("rank.log"), 0640U);
  EXPECT_EQ(mode("rank.json"), 0600U);
  EXPECT_EQ(mode("exit.json"), 0600U);
}

TEST_F(ShimTest, OutputIsAppended) {
  std::ofstream(Path("rank.log")) << "earlier\n";
  StartScript("echo later");
  EXPECT_EQ(Wait(), 0);
  EXPECT_EQ(ReadText("rank.log"), "earlier\nlater\n");
}

TEST_F(ShimTest, ALongLogGivesItsOldestBlocksBack) {
  // 4 MiB of numbered lines of 64 bytes, then one more when asked.
  StartScript(
      "cd " + dir_ +
          "; i=0; while [ $i -lt 64 ]; do "
          "awk -v from=$((i * 1024)) 'BEGIN {for (n = 0; n < 1024; ++n) printf \"%063d\\n\", "
          "from + n}'; i=$((i + 1)); done; : > written; "
          "while [ ! -e go ]; do sleep 0.01; done; echo end",
      "60000", {"--log-max-mib", "1"});
  Await("written");
  constexpr off_t kWritten = 4 << 20;
  constexpr off_t kPart = (1 << 20) / 8;
  struct stat info {};
  do {
    ::usleep(5000);
    ASSERT_EQ(::stat(Path("rank.log").c_str(), &info), 0);
    if (ReadText("rank.log").find("not bounded") != std::string::npos) {
      std::ofstream(Path("go")).flush();
      Wait();
      ASSERT_EQ(std::getenv("MT_REQUIRE_ROOT"), nullptr) << dir_ << ": no file may have holes";
      GTEST_SKIP() << "the file system of " << dir_ << " has no holes";
    }
    // A look in the middle of the last part leaves eight, until the next one.
  } while (info.st_blocks * 512 >= (1 << 20));
  EXPECT_EQ(info.st_size, kWritten);
  std::ofstream(Path("go")).flush();
  EXPECT_EQ(Wait(), 0);
  const std::string log = ReadText("rank.log");
  ASSERT_EQ(log.size(), static_cast<size_t>(kWritten + 4));
  EXPECT_EQ(log.substr(kWritten), "end\n");
  // The newest seven whole parts are there to the last line; what is before them is a hole.
  const size_t kept_from = static_cast<size_t>(kWritten - 7 * kPart);
  EXPECT_EQ(log.find_first_not_of('\0'), kept_from);
  for (size_t line = kept_from / 64; line < kWritten / 64; ++line) {
    ASSERT_EQ(std::stoul(log.substr(line * 64, 63)), line);
  }
}

TEST_F(ShimTest, ProgramThatCannotStart) {
  Start({"/no/such/program"});
  EXPECT_EQ(Wait(), 0);
  const json exit = ReadJson("exit.json");
  EXPECT_EQ(exit["code"], 127);
  EXPECT_EQ(exit["error"], "/no/such/program: No such file or directory");
  EXPECT_FALSE(base::Exists(Path("rank.json")));
}

TEST_F(ShimTest, LogThatCannotBeOpened) {
  Start({"/bin/true"}, "60000", Path("missing/rank.log"));
  EXPECT_EQ(Wait(), 0);
  EXPECT_EQ(ReadJson("exit.json")["error"],
            Path("missing/rank.log") + ": No such file or directory");
}

TEST_F(ShimTest, TheRankInheritsNoDescriptorOfTheAgent) {
  StartScript("ls /proc/$$/fd");
  EXPECT_EQ(Wait(), 0);
  EXPECT_EQ(ReadText("rank.log"), "0\n1\n2\n");
}

TEST_F(ShimTest, BadArgumentsStartNothing) {
  shim_ = ::fork();
  if (shim_ == 0) {
    ::execl(MT_SHIM_BINARY, MT_SHIM_BINARY, "--dir", dir_.c_str(), nullptr);
    ::_exit(99);
  }
  EXPECT_EQ(Wait(), 2);
}

}  // namespace
}  // namespace mt::node
