// kill -9 of a rank that is a process, in the middle of a collective: every survivor gets an error
// that names a peer, and none remains in its call. One that is only stopped ends nobody's wait.
#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/base/ids.h"
#include "tests/worker/comm/member_process.h"

namespace mt::comm {
namespace {

using Clock = std::chrono::steady_clock;

// Processes that repeat an operation, of which each has said that it runs.
class Members {
 public:
  static constexpr int kSize = 3;

  Members(const std::string& op, const std::string& kind)
      : folder_(testing::TempDir() + "mt_kill_" + base::RandomHex(8)) {
    for (int index = 0; index < kSize; ++index) {
      members_.push_back(std::make_unique<MemberProcess>(
          "mt_comm_member", std::vector<std::string>{folder_, std::to_string(index),
                                                     std::to_string(kSize), op, kind}));
    }
    const auto deadline = Clock::now() + std::chrono::seconds(60);
    for (const auto& member : members_) EXPECT_EQ(member->ReadLine(deadline), "running");
  }
  ~Members() {
    members_.clear();
    std::filesystem::remove_all(folder_);
  }
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;

  MemberProcess& operator[](int index) { return *members_[static_cast<size_t>(index)]; }

 private:
  const std::string folder_;
  std::vector<std::unique_ptr<MemberProcess>> members_;
};

class Kill : public testing::TestWithParam<std::string> {};

TEST_P(Kill, SurvivorsGetAnError) {
  constexpr std::array kOps = {"all_reduce", "all_reduce_half", "reduce_scatter", "all_gather",
                               "broadcast",  "all_to_all",      "messages",       "small",
                               "barrier",    "all_reduce"};
  // Hang bounds, far above the tenth of a second that both need.
  const auto bound = std::chrono::seconds(GetParam() == "shm" ? 3 : 10);
  std::mt19937 generator(5);
  for (int trial = 0; trial < 20; ++trial) {
    const std::string op = kOps[static_cast<size_t>(trial) % kOps.size()];
    const int victim = trial % Members::kSize;
    SCOPED_TRACE(fmt::format("trial {}: {}, victim {}", trial, op, victim));
    Members members(op, GetParam());
    if (HasFailure()) return;
    // Somewhere in a round of a few milliseconds.
    std::this_thread::sleep_for(std::chrono::microseconds(generator() % 30000));
    members[victim].Kill();
    const auto deadline = Clock::now() + bound;
    bool named = false;
    for (int index = 0; index < Members::kSize; ++index) {
      if (index == victim) continue;
      const std::string line = members[index].ReadLine(deadline);
      EXPECT_TRUE(line.starts_with("UNAVAILABLE: group kill")) << "rank " << index << ": " << line;
      EXPECT_NE(line.find("lost rank "), std::string::npos) << line;
      named |= line.find(fmt::format("rank {} (world {})", victim, victim), line.find("lost ")) !=
               std::string::npos;
    }
    EXPECT_TRUE(named) << "nobody names the dead rank";
  }
}

TEST_P(Kill, OneThatIsStoppedIsWaitedFor) {
  Members members("small", GetParam());
  members[1].Signal(SIGSTOP);
  // Several of the looks at which a dead one is found.
  const auto later = Clock::now() + std::chrono::milliseconds(300);
  for (const int index : {0, 2}) EXPECT_EQ(members[index].ReadLine(later), "");
  members[1].Signal(SIGCONT);
  EXPECT_EQ(members[1].ReadLine(Clock::now() + std::chrono::milliseconds(100)), "");
  members[1].Kill();
  for (const int index : {0, 2}) {
    const std::string line = members[index].ReadLine(Clock::now() + std::chrono::seconds(10));
    // The other survivor may have left meanwhile and be met first: then both are named.
    EXPECT_NE(line.find("rank 1 (world 1)", line.find("lost ")), std::string::npos) << line;
  }
}

INSTANTIATE_TEST_SUITE_P(Processes, Kill, testing::Values("gloo", "shm"),
                         [](const auto& param) { return param.param; });

// Nor is there a name that could be left while they run.
TEST(SharedMemory, HasNoNameInAnyFolder) {
  Members members("small", "shm");
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    EXPECT_EQ(entry.path().string().find("megatrain"), std::string::npos) << entry.path();
  }
}

}  // namespace
}  // namespace mt::comm
