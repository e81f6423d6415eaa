// kill -9 of a rank that is a process, in the middle of a collective: every survivor gets an error
// that names a peer, and none remains in its call.
#include <array>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <poll.h>
#include <random>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/ids.h"

namespace mt::comm {
namespace {

using Clock = std::chrono::steady_clock;

class Member {
 public:
  Member(const std::string& folder, int index, int size, const std::string& op) {
    std::array<int, 2> ends{};
    CHECK_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    out_ = base::Fd(ends[0]);
    const base::Fd write_end(ends[1]);
    const std::string program = std::string(MT_BINARY_DIR) + "/bin/mt_comm_member";
    std::vector<std::string> arguments = {program, folder, std::to_string(index),
                                          std::to_string(size), op};
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
    const int error = posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    CHECK_EQ(error, 0) << argv[0];
  }
  ~Member() {
    Kill();
    int status = 0;
    waitpid(pid_, &status, 0);
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  void Kill() const { kill(pid_, SIGKILL); }

  // The next line it prints; "" at its end or after the deadline.
  std::string ReadLine(Clock::time_point deadline) {
    while (text_.find('\n') == std::string::npos) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      pollfd descriptor{.fd = out_.get(), .events = POLLIN, .revents = 0};
      if (left.count() <= 0 || poll(&descriptor, 1, static_cast<int>(left.count())) != 1) return "";
      std::array<char, 4096> block{};
      const ssize_t n = read(out_.get(), block.data(), block.size());
      if (n <= 0) return "";
      text_.append(block.data(), static_cast<size_t>(n));
    }
    const size_t end = text_.find('\n');
    std::string line = text_.substr(0, end);
    text_.erase(0, end + 1);
    return line;
  }

 private:
  pid_t pid_ = -1;
  base::Fd out_;
  std::string text_;
};

TEST(Kill, SurvivorsGetAnErrorWithinTenSeconds) {
  constexpr std::array kOps = {"all_reduce", "all_reduce_half", "reduce_scatter", "all_gather",
                               "broadcast",  "all_to_all",      "messages",       "small",
                               "barrier",    "all_reduce"};
  constexpr int kSize = 3;
  std::mt19937 generator(5);
  for (int trial = 0; trial < 20; ++trial) {
    const std::string op = kOps[static_cast<size_t>(trial) % kOps.size()];
    const int victim = trial % kSize;
    SCOPED_TRACE(fmt::format("trial {}: {}, victim {}", trial, op, victim));
    const std::string folder = testing::TempDir() + "mt_kill_" + base::RandomHex(8);
    std::vector<std::unique_ptr<Member>> members;
    members.reserve(kSize);
    for (int index = 0; index < kSize; ++index) {
      members.push_back(std::make_unique<Member>(folder, index, kSize, op));
    }
    const auto start_deadline = Clock::now() + std::chrono::seconds(60);
    for (const auto& member : members) ASSERT_EQ(member->ReadLine(start_deadline), "running");
    // Somewhere in a round of a few milliseconds.
    std::this_thread::sleep_for(std::chrono::microseconds(generator() % 30000));
    members[static_cast<size_t>(victim)]->Kill();
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    bool named = false;
    for (int index = 0; index < kSize; ++index) {
      if (index == victim) continue;
      const std::string line = members[static_cast<size_t>(index)]->ReadLine(deadline);
      EXPECT_TRUE(line.starts_with("UNAVAILABLE: group kill")) << "rank " << index << ": " << line;
      EXPECT_NE(line.find("lost rank "), std::string::npos) << line;
      named |= line.find(fmt::format("rank {} (world {})", victim, victim), line.find("lost ")) !=
               std::string::npos;
    }
    EXPECT_TRUE(named) << "nobody names the dead rank";
    members.clear();
    std::filesystem::remove_all(folder);
  }
}

}  // namespace
}  // namespace mt::comm
