// Stages as processes, on the CPU: passes come to their end, and kill -9 of a stage in the middle
// of them ends all others, by the link that notices it. The same on GPUs:
// tests/gpu/link_members.py.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/ids.h"
#include "tests/worker/comm/member_process.h"

namespace mt::parallel {
namespace {

using Steady = std::chrono::steady_clock;

class StageProcesses {
 public:
  // `passes`: 0: for ever.
  StageProcesses(int stages, const std::string& schedule, int passes)
      : folder_(testing::TempDir() + "mt_links_" + base::RandomHex(8)) {
    for (int stage = 0; stage < stages; ++stage) {
      members_.push_back(std::make_unique<comm::MemberProcess>(
          "mt_link_member",
          std::vector<std::string>{folder_, std::to_string(stage), std::to_string(stages), "cpu",
                                   "any", schedule, "1", std::to_string(passes)}));
    }
    for (const auto& member : members_) EXPECT_EQ(member->ReadLine(Limit()), "running");
  }
  ~StageProcesses() {
    members_.clear();
    std::filesystem::remove_all(folder_);
  }
  StageProcesses(const StageProcesses&) = delete;
  StageProcesses& operator=(const StageProcesses&) = delete;

  comm::MemberProcess& operator[](int stage) { return *members_[static_cast<size_t>(stage)]; }
  static Steady::time_point Limit() { return Steady::now() + std::chrono::seconds(60); }

 private:
  const std::string folder_;
  std::vector<std::unique_ptr<comm::MemberProcess>> members_;
};

TEST(LinkProcesses, PassesComeToTheirEnd) {
  for (const std::string schedule : {"gpipe", "interleaved"}) {
    StageProcesses stages(2, schedule, 3);
    for (int stage = 0; stage < 2; ++stage) {
      const std::string said = stages[stage].ReadAll(StageProcesses::Limit());
      EXPECT_THAT(said, testing::HasSubstr("3 passes")) << schedule;
      EXPECT_THAT(said, testing::EndsWith("OK\n")) << schedule;
    }
  }
}

TEST(LinkProcesses, ADeadStageEndsAllOthers) {
  for (int victim = 0; victim < 3; ++victim) {
    StageProcesses stages(3, victim == 2 ? "gpipe" : "1f1b", 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(7 * victim));
    stages[victim].Kill();
    const auto begin = Steady::now();
    for (int stage = 0; stage < 3; ++stage) {
      if (stage == victim) continue;
      EXPECT_THAT(stages[stage].ReadAll(StageProcesses::Limit()),
                  testing::StartsWith("UNAVAILABLE: "));
    }
    EXPECT_LT(Steady::now() - begin, std::chrono::seconds(10));
  }
}

TEST(LinkProcesses, OneThatIsToldToLeaveSaysSo) {
  StageProcesses stages(2, "1f1b", 0);
  stages[0].Signal(SIGUSR1);
  EXPECT_THAT(stages[0].ReadAll(StageProcesses::Limit()), testing::StartsWith("ABORTED: "));
  EXPECT_THAT(stages[1].ReadAll(StageProcesses::Limit()), testing::StartsWith("UNAVAILABLE: "));
}

}  // namespace
}  // namespace mt::parallel
