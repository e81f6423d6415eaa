// A process that gets SIGKILL in the middle of an operation of its saves, by name: the next process
// goes on from the newest complete checkpoint, to the bit. Once at each name; with MT_LONG_TESTS
// five times, at turns from the first to the last.
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <map>
#include <new>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/worker/train/saves/crash_rig.h"

namespace mt::train {
namespace {

// Memory that a child shares with this process: the newest step that it has told as saved.
class ToldStep {
 public:
  ToldStep() {
    void* const page = ::mmap(nullptr, sizeof(std::atomic<int64_t>), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    step_ = new (page) std::atomic<int64_t>(0);
  }
  ~ToldStep() { ::munmap(step_, sizeof *step_); }
  ToldStep(const ToldStep&) = delete;
  ToldStep& operator=(const ToldStep&) = delete;
  std::atomic<int64_t>& step() { return *step_; }

 private:
  std::atomic<int64_t>* step_;
};

class CrashKillTest : public CrashTest {
 protected:
  // Of each name, in a run that nobody kills.
  std::map<std::string, int> CountTurns() {
    std::map<std::string, int> turns;
    crash::OperationNames names(RoleOfPath);
    calm_ = RunLogged(Disk("calm"), [&](const crash::Operation& next) {
      ++turns[names.Next(next)];
      return crash::Fault{};
    });
    ExpectClean(calm_.outcomes, kLastStep);
    return turns;
  }

  // A child runs and is killed as it begins this operation for the nth time.
  void RunAndKillAt(const std::string& name, int turn) {
    told_.step() = 0;
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      told_saved_ = [this](int64_t step) { told_.step() = step; };
      crash::OperationNames names(RoleOfPath);
      int turns = 0;
      (void)RunLogged(Disk("disk"), [&](const crash::Operation& next) {
        if (names.Next(next) == name && ++turns == turn) ::kill(::getpid(), SIGKILL);
        return crash::Fault{};
      });
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  }

  LoggedRun calm_;
  ToldStep told_;
};

TEST_F(CrashKillTest, TheNextProcessGoesOnToTheBit) {
  const int times = std::getenv("MT_LONG_TESTS") == nullptr ? 1 : 5;
  const std::map<std::string, int> turns = CountTurns();
  int names = 0;
  for (const auto& [name, count] : turns) {
    if (name.starts_with("open ") || name.starts_with("read ")) continue;
    ++names;
    for (int i = 0; i < times; ++i) {
      const int turn = times == 1 ? (count + 1) / 2 : 1 + i * (count - 1) / (times - 1);
      SCOPED_TRACE(fmt::format("{}, turn {} of {}", name, turn, count));
      RunAndKillAt(name, turn);
      EXPECT_EQ(ComplaintOfGoingOn(Disk("disk"), told_.step(), calm_.outcomes[0].seen.steps), "");
    }
  }
  EXPECT_GE(names, 24);
}

}  // namespace
}  // namespace mt::train
