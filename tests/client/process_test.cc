// Background processes: started detached, identified by pid and start time, and stopped even if
// they ignore SIGTERM.
#include "client/dev/process.h"

#include <cstdlib>
#include <filesystem>
#include <unistd.h>

#include <gtest/gtest.h>

#include "common/base/files.h"

namespace mt::client {
namespace {

class ProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "mt-client-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Log() const { return folder_ + "/log"; }
  std::string folder_;
};

TEST_F(ProcessTest, StartsInItsOwnSessionAndStops) {
  const auto process = StartDetached({"/bin/sh", "-c", "echo started; exec sleep 1000"}, Log());
  ASSERT_TRUE(process.ok()) << process.status();
  EXPECT_TRUE(IsAlive(*process));
  EXPECT_EQ(::getsid(static_cast<pid_t>(process->pid)), process->pid);
  EXPECT_FALSE(IsAlive({process->pid, process->start_ticks + 1}));  // a reused pid
  while (*base::ReadFile(Log()) != "started\n") ::usleep(10'000);
  EXPECT_TRUE(StopProcess(*process, std::chrono::seconds(5)).ok());
  EXPECT_FALSE(IsAlive(*process));
  EXPECT_TRUE(StopProcess(*process, std::chrono::seconds(5)).ok());
}

TEST_F(ProcessTest, KillsWhatIgnoresTerm) {
  const auto process = StartDetached(
      {"/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"}, Log());
  ASSERT_TRUE(process.ok());
  while (!base::ReadFile(Log()).value().starts_with("ready")) ::usleep(10'000);
  EXPECT_TRUE(StopProcess(*process, std::chrono::milliseconds(200)).ok());
  EXPECT_FALSE(IsAlive(*process));
}

TEST_F(ProcessTest, AMissingProgramIsAnErrorThatNamesIt) {
  const auto process = StartDetached({folder_ + "/nothing"}, Log());
  EXPECT_EQ(process.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(base::Message(process.status()).find("nothing"), std::string::npos);
}

}  // namespace
}  // namespace mt::client
