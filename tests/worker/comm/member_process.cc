// posix_spawn with a pipe.
#include "tests/worker/comm/member_process.h"

#include <array>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "common/base/check.h"
#include "tests/paths.h"

namespace mt::comm {
namespace {

// Null-terminated, as exec takes it. Points into `strings`.
std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

MemberProcess::MemberProcess(const std::string& program, std::vector<std::string> arguments,
                             std::vector<std::string> environment) {
  std::array<int, 2> ends{};
  CHECK_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  out_ = base::Fd(ends[0]);
  const base::Fd write_end(ends[1]);
  const std::string path = std::string(MT_BINARY_DIR) + "/bin/" + program;
  arguments.insert(arguments.begin(), path);
  // The first of two entries counts.
  for (char** own = environ; *own != nullptr; ++own) environment.emplace_back(*own);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
  const int error = posix_spawn(&pid_, path.c_str(), &actions, nullptr, Pointers(arguments).data(),
                                Pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  CHECK_EQ(error, 0) << path;
}

MemberProcess::~MemberProcess() {
  Kill();
  int status = 0;
  waitpid(pid_, &status, 0);
}

void MemberProcess::Kill() const { Signal(SIGKILL); }

void MemberProcess::Signal(int number) const { kill(pid_, number); }

bool MemberProcess::Read(std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  pollfd descriptor{.fd = out_.get(), .events = POLLIN, .revents = 0};
  if (left.count() <= 0 || poll(&descriptor, 1, static_cast<int>(left.count())) != 1) return false;
  std::array<char, 4096> block{};
  const ssize_t n = read(out_.get(), block.data(), block.size());
  if (n <= 0) return false;
  text_.append(block.data(), static_cast<size_t>(n));
  return true;
}

std::string MemberProcess::ReadLine(std::chrono::steady_clock::time_point deadline) {
  while (text_.find('\n') == std::string::npos) {
    if (!Read(deadline)) return "";
  }
  const size_t end = text_.find('\n');
  std::string line = text_.substr(0, end);
  text_.erase(0, end + 1);
  return line;
}

std::string MemberProcess::ReadAll(std::chrono::steady_clock::time_point deadline) {
  while (Read(deadline)) {
  }
  return std::exchange(text_, {});
}

}  // namespace mt::comm
