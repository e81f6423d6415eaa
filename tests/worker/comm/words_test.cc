// A group of words of 1,024 members (256 under sanitizers), as the threads of some processes: what
// it costs a member, and how it ends when a process is killed.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/ids.h"
#include "tests/sanitized.h"
#include "tests/worker/comm/member_process.h"

namespace mt::comm {
namespace {

constexpr int kProcesses = kSanitized ? 16 : 64;
constexpr int kThreads = 16;
constexpr int kMembers = kProcesses * kThreads;
constexpr int kKilled = kProcesses / 2 + 5;
// Of a member.
constexpr int64_t kMostGrowth = int64_t{4} << 20;  // bytes
constexpr int kMostSockets = 16;

TEST(Words, AThousandMembersCostLittleAndEndTogether) {
  const std::string folder = testing::TempDir() + "mt_words_" + base::RandomHex(8);
  std::vector<std::unique_ptr<MemberProcess>> processes;
  processes.reserve(kProcesses);
  for (int i = 0; i < kProcesses; ++i) {
    processes.push_back(std::make_unique<MemberProcess>(
        "mt_words_members",
        std::vector<std::string>{folder, std::to_string(i * kThreads), std::to_string(kThreads),
                                 std::to_string(kMembers)}));
  }
  // Hang bounds.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(180);
  int64_t most_growth = 0;
  int most_sockets = 0;
  for (const auto& process : processes) {
    const std::string line = process->ReadLine(deadline);
    long growth = 0;
    int sockets = 0;
    ASSERT_EQ(std::sscanf(line.c_str(), "growth %ld sockets %d", &growth, &sockets), 2) << line;
    most_growth = std::max<int64_t>(most_growth, growth / kThreads);
    most_sockets = std::max(most_sockets, sockets / kThreads);
  }
  RecordProperty("growth_bytes", std::to_string(most_growth));
  RecordProperty("sockets", std::to_string(most_sockets));
  EXPECT_LE(most_growth, kMostGrowth);
  EXPECT_LE(most_sockets, kMostSockets);
  processes[kKilled]->Kill();
  for (int i = 0; i < kProcesses; ++i) {
    if (i == kKilled) continue;
    const std::string end = processes[static_cast<size_t>(i)]->ReadAll(deadline);
    size_t lines = 0;
    for (size_t at = 0; (at = end.find("UNAVAILABLE", at)) != std::string::npos; ++at) ++lines;
    EXPECT_EQ(lines, static_cast<size_t>(kThreads)) << "process " << i << ": " << end;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace mt::comm
