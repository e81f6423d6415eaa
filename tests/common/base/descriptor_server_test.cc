// Descriptors of memory files handed over within a process and to others: what arrives is the same
// memory, and nobody who is silent, gone or of another user keeps anybody from it.
#include "common/base/descriptor_server.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <pthread.h>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/ids.h"

namespace mt::base {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

Fd MemoryFile(const std::string& content) {
  Fd fd(::memfd_create("mt-descriptor-test", MFD_CLOEXEC));
  EXPECT_EQ(::write(fd.get(), content.data(), content.size()),
            static_cast<ssize_t>(content.size()));
  return fd;
}

std::string ContentOf(const Fd& fd) {
  std::array<char, 64> buffer{};
  const ssize_t got = ::pread(fd.get(), buffer.data(), buffer.size(), 0);
  return got < 0 ? std::strerror(errno) : std::string(buffer.data(), static_cast<size_t>(got));
}

// connect or bind, with an abstract address.
template <class Call>
int At(const std::string& address, const Fd& fd, const Call& call) {
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  std::memcpy(un.sun_path + 1, address.data(), address.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size());
  return call(fd.get(), reinterpret_cast<const sockaddr*>(&un), size);
}

// A caller by hand.
Fd Connect(const std::string& address) {
  Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  EXPECT_EQ(At(address, fd, ::connect), 0);
  return fd;
}

// Listens as a server does, and does no more by itself.
struct Listener {
  explicit Listener(int places) {
    EXPECT_EQ(At(address, fd, ::bind), 0);
    EXPECT_EQ(::listen(fd.get(), places), 0);
  }
  const std::string address = "megatrain-test-" + RandomHex(8);
  const Fd fd{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
};

// Whether the other end closes the connection within 10 s, accepted or not, and sends nothing.
bool IsClosed(const Fd& fd) {
  const timeval limit{.tv_sec = 10, .tv_usec = 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  char byte = 0;
  const ssize_t got = ::recv(fd.get(), &byte, 1, 0);
  return got == 0 || (got < 0 && errno == ECONNRESET);
}

TEST(DescriptorServerTest, WhatArrivesIsTheSameFileWhateverBecomesOfTheServer) {
  auto server = DescriptorServer::Start().value();
  const uint64_t a = server->Add(MemoryFile("first"));
  const uint64_t b = server->Add(MemoryFile("second"));
  EXPECT_NE(a, b);
  const Fd first = FetchDescriptor(server->address(), a).value();
  const Fd second = FetchDescriptor(server->address(), b).value();
  const Fd again = FetchDescriptor(server->address(), b).value();
  server.reset();
  EXPECT_EQ(ContentOf(first), "first");
  EXPECT_EQ(ContentOf(second), "second");
  EXPECT_EQ(::pwrite(again.get(), "S", 1, 0), 1);
  EXPECT_EQ(ContentOf(second), "Second");
}

TEST(DescriptorServerTest, NumbersThatAreUnknownOrRemovedAreNotFound) {
  const auto server = DescriptorServer::Start().value();
  const uint64_t id = server->Add(MemoryFile("here"));
  EXPECT_TRUE(FetchDescriptor(server->address(), id).ok());
  server->Remove(id);
  server->Remove(id);
  for (const uint64_t number : {id, uint64_t{0}, id + 1}) {
    const Status missing = FetchDescriptor(server->address(), number).status();
    EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound) << missing;
  }
  EXPECT_NE(server->Add(MemoryFile("new")), id) << "a number names one descriptor for ever";
}

TEST(DescriptorServerTest, AServerThatHasEndedIsUnavailableAtOnce) {
  auto server = DescriptorServer::Start().value();
  const std::string address = server->address();
  const uint64_t id = server->Add(MemoryFile("gone"));
  server.reset();
  const auto begin = steady_clock::now();
  const Status gone = FetchDescriptor(address, id).status();
  EXPECT_EQ(gone.code(), absl::StatusCode::kUnavailable) << gone;
  EXPECT_THAT(Message(gone), HasSubstr("has ended, or runs in another network namespace"));
  EXPECT_LT(steady_clock::now() - begin, seconds(5));
  EXPECT_EQ(FetchDescriptor(std::string(200, 'x'), id).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// More of them than the server takes at a time: those who ask have their turn once the first are
// given up.
TEST(DescriptorServerTest, CallersThatSayNothingAreGivenUpAndHoldNobody) {
  const auto server =
      DescriptorServer::Start({.patience = milliseconds(300), .most_callers = 2}).value();
  const uint64_t id = server->Add(MemoryFile("served"));
  std::vector<Fd> silent;
  for (int i = 0; i < 5; ++i) silent.push_back(Connect(server->address()));
  const Fd got = FetchDescriptor(server->address(), id).value();
  EXPECT_EQ(ContentOf(got), "served");
  for (const Fd& each : silent) EXPECT_TRUE(IsClosed(each));
}

TEST(DescriptorServerTest, NonsenseEndsItsOwnCallAlone) {
  const auto server = DescriptorServer::Start().value();
  const uint64_t id = server->Add(MemoryFile("served"));
  const Fd shorter = Connect(server->address()), longer = Connect(server->address());
  const Fd leaves = Connect(server->address());
  EXPECT_EQ(::send(shorter.get(), "abc", 3, 0), 3);
  EXPECT_TRUE(IsClosed(shorter));
  const std::array<uint64_t, 2> twice = {id, id};
  EXPECT_EQ(::send(longer.get(), twice.data(), sizeof(twice), 0), 16);
  EXPECT_TRUE(IsClosed(longer));
  EXPECT_EQ(::send(leaves.get(), &id, sizeof(id), 0), 8);
  ::shutdown(leaves.get(), SHUT_RDWR);  // reads no answer
  EXPECT_TRUE(FetchDescriptor(server->address(), id).ok());
}

TEST(DescriptorServerTest, EndsWhileCallersAreSilent) {
  auto server = DescriptorServer::Start({.patience = std::chrono::hours(1)}).value();
  const Fd silent = Connect(server->address());
  const auto begin = steady_clock::now();
  server.reset();
  EXPECT_LT(steady_clock::now() - begin, seconds(10));
  EXPECT_TRUE(IsClosed(silent));
}

TEST(DescriptorServerTest, AServerThatDoesNotAnswerIsLate) {
  const Listener listener(0);
  // The first is let wait for an answer, later ones for a place in the queue.
  for (int i = 0; i < 3; ++i) {
    const Status late = FetchDescriptor(listener.address, 1, milliseconds(100)).status();
    EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
  }
}

// Calls on sockets with a limit are not resumed behind a signal: each one must be made again, with
// what is left of the time.
TEST(DescriptorServerTest, SignalsNeitherEndAFetchNorProlongIt) {
  const Listener listener(0);
  const Fd first = Connect(listener.address);  // takes the one place
  struct sigaction nothing {
  }, before{};
  nothing.sa_handler = [](int) {};
  nothing.sa_flags = SA_RESTART;
  ASSERT_EQ(::sigaction(SIGUSR1, &nothing, &before), 0);
  for (const bool accepted : {false, true}) {
    const Fd peer(accepted ? ::accept(listener.fd.get(), nullptr, nullptr) : -1);
    std::atomic<bool> over = false;
    Status late;
    const auto begin = steady_clock::now();
    std::thread fetch([&] {
      late = FetchDescriptor(listener.address, 1, milliseconds(300)).status();
      over = true;
    });
    while (!over && steady_clock::now() - begin < seconds(10)) {
      ::pthread_kill(fetch.native_handle(), SIGUSR1);
      std::this_thread::sleep_for(milliseconds(10));
    }
    const auto took = steady_clock::now() - begin;
    fetch.join();
    EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded) << late;
    EXPECT_GE(took, milliseconds(300));
    EXPECT_LT(took, seconds(10));
  }
  ::sigaction(SIGUSR1, &before, nullptr);
}

// As a caller that was stopped before it asked, whom the server took for a silent one.
TEST(DescriptorServerTest, ACallerThatIsGivenUpOnceAsksAgain) {
  const Listener listener(2);
  std::thread server([&] {
    Fd(::accept(listener.fd.get(), nullptr, nullptr)).Reset();
    const Fd caller(::accept(listener.fd.get(), nullptr, nullptr));
    uint64_t id = 0;
    EXPECT_EQ(::recv(caller.get(), &id, sizeof(id), 0), 8);
    EXPECT_EQ(id, 77U);
    EXPECT_EQ(::send(caller.get(), "\1", 1, MSG_NOSIGNAL), 1);
  });
  const Status answered = FetchDescriptor(listener.address, 77).status();
  server.join();
  EXPECT_EQ(answered.code(), absl::StatusCode::kNotFound) << answered;
}

TEST(DescriptorServerTest, WhatArrivesIsClosedByExec) {
  const auto server = DescriptorServer::Start().value();
  const Fd got = FetchDescriptor(server->address(), server->Add(MemoryFile("kept"))).value();
  EXPECT_EQ(::fcntl(got.get(), F_GETFD), FD_CLOEXEC);
}

TEST(DescriptorServerTest, ManyAskAtOnceWhileNumbersComeAndGo) {
  const auto server = DescriptorServer::Start().value();
  constexpr int kThreads = 8, kRounds = 50;
  std::array<uint64_t, kThreads> ids{};
  for (int i = 0; i < kThreads; ++i) ids[i] = server->Add(MemoryFile(std::to_string(i)));
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < kRounds; ++round) {
        const int of = (i + round) % kThreads;
        const auto got = FetchDescriptor(server->address(), ids[of]);
        ASSERT_TRUE(got.ok()) << got.status();
        EXPECT_EQ(ContentOf(*got), std::to_string(of));
        server->Remove(server->Add(MemoryFile("short-lived")));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// How another user's process fares: 0 as it should, 77 where this one cannot become another user.
int FetchAsAnotherUser(const std::string& address, uint64_t id) {
  constexpr uid_t kNobody = 65534;
  if (::setresuid(kNobody, kNobody, kNobody) != 0) return 77;
  const Status refused = FetchDescriptor(address, id).status();
  if (refused.code() != absl::StatusCode::kPermissionDenied) return 1;
  const Fd caller = Connect(address);  // who does not look whose server it is
  static_cast<void>(::send(caller.get(), &id, sizeof(id), MSG_NOSIGNAL));
  char byte = 0;
  return ::recv(caller.get(), &byte, 1, 0) > 0 ? 2 : 0;
}

TEST(DescriptorServerTest, AnotherUserGetsNothing) {
  const auto server = DescriptorServer::Start().value();
  const uint64_t id = server->Add(MemoryFile("mine"));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(FetchAsAnotherUser(server->address(), id));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) {
    ASSERT_EQ(std::getenv("MT_REQUIRE_ROOT"), nullptr) << "another user needs root";
    GTEST_SKIP() << "only root can become another user";
  }
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(FetchDescriptor(server->address(), id).ok());
}

// The server dies with its process, and what it has handed out lives on.
TEST(DescriptorServerTest, AProcessThatIsKilledLeavesWhatItHasHandedOut) {
  int ready[2] = {-1, -1};
  ASSERT_EQ(::pipe(ready), 0);
  const Fd read_end(ready[0]), write_end(ready[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto server = DescriptorServer::Start().value();
    const std::string line =
        server->address() + " " + std::to_string(server->Add(MemoryFile("of a process that dies")));
    static_cast<void>(!::write(write_end.get(), line.data(), line.size()));
    while (true) ::pause();
  }
  std::array<char, 128> line{};
  const ssize_t got = ::read(read_end.get(), line.data(), line.size());
  ASSERT_GT(got, 0);
  const std::string text(line.data(), static_cast<size_t>(got));
  const std::string address = text.substr(0, text.find(' '));
  const uint64_t id = std::stoull(text.substr(text.find(' ')));
  const auto fd = FetchDescriptor(address, id);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(fd.ok()) << fd.status();
  EXPECT_EQ(ContentOf(*fd), "of a process that dies");
  EXPECT_EQ(FetchDescriptor(address, id).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace mt::base
