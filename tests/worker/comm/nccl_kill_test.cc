// kill -9 of a rank in the middle of a collective over NCCL. Nobody notices, since NCCL does not:
// the others leave once their groups are aborted, which is what the switch of worker/rank does when
// the agent reports the loss.
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
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/ids.h"
#include "tests/worker/comm/member_process.h"
#include "tests/worker/comm/nccl_harness.h"

namespace mt::comm {
namespace {

using Clock = std::chrono::steady_clock;

TEST(NcclKill, SurvivorsLeaveOnceTheirGroupIsAborted) {
  constexpr int kSize = 3;
  constexpr std::array kOps = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all",
                               "barrier"};
  std::mt19937 generator(11);
  for (size_t trial = 0; trial < kOps.size(); ++trial) {
    const size_t victim = trial % kSize;
    SCOPED_TRACE(fmt::format("{}, victim {}", kOps[trial], victim));
    const std::string folder = testing::TempDir() + "mt_nccl_kill_" + base::RandomHex(8);
    std::vector<std::unique_ptr<MemberProcess>> members;
    members.reserve(kSize);
    for (int index = 0; index < kSize; ++index) {
      members.push_back(std::make_unique<MemberProcess>(
          "mt_nccl_member",
          std::vector<std::string>{"repeat", folder, std::to_string(index), std::to_string(kSize),
                                   kOps[trial]},
          std::vector<std::string>{"LD_LIBRARY_PATH=" + StandInFolder()}));
    }
    const Clock::time_point begun = Clock::now() + std::chrono::seconds(60);
    for (const auto& member : members) ASSERT_EQ(member->ReadLine(begun), "running");
    // Somewhere in a round.
    std::this_thread::sleep_for(std::chrono::microseconds(generator() % 20000));
    members[victim]->Kill();
    const Clock::time_point later = Clock::now() + std::chrono::milliseconds(100);
    for (size_t index = 0; index < kSize; ++index) {
      if (index == victim) continue;
      EXPECT_EQ(members[index]->ReadLine(later), "") << "a rank noticed by itself";
    }
    const Clock::time_point bound = Clock::now() + std::chrono::seconds(10);
    for (const auto& member : members) member->Signal(SIGUSR1);
    for (size_t index = 0; index < kSize; ++index) {
      if (index == victim) continue;
      const std::string last = members[index]->ReadAll(bound);
      EXPECT_THAT(last, testing::StartsWith("ABORTED: group members")) << "rank " << index;
      EXPECT_THAT(last, testing::HasSubstr("this rank leaves")) << "rank " << index;
      EXPECT_LT(Clock::now(), bound);
    }
    members.clear();
    std::filesystem::remove_all(folder);
  }
}

}  // namespace
}  // namespace mt::comm
