// The communication thread's queue: order, results, the first failure, destruction.
#include "worker/parallel/comm_thread.h"

#include <atomic>
#include <numeric>
#include <string>
#include <sys/types.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "kernels/core/device.h"
#include "worker/failure/failure.h"

namespace mt::parallel {
namespace {

TEST(CommThreadTest, TasksRunInOrderAndWaitSeesWhatTheyWrote) {
  CommThread thread("mt-test");
  std::vector<int> written;
  CommThread::Ticket last = 0;
  for (int i = 0; i < 100; ++i) {
    const CommThread::Ticket ticket = thread.Post([&written, i] {
      written.push_back(i);
      return OkStatus();
    });
    EXPECT_GT(ticket, last);
    last = ticket;
  }
  EXPECT_TRUE(thread.Wait(last).ok());
  EXPECT_FALSE(thread.busy());
  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(written, expected);
  EXPECT_TRUE(thread.Wait(1).ok()) << "long done";
}

TEST(CommThreadTest, WaitIsForOneTaskNotForThoseBehindIt) {
  CommThread thread("mt-test");
  std::atomic<bool> go = false;
  const CommThread::Ticket first = thread.Post([] { return OkStatus(); });
  const CommThread::Ticket second = thread.Post([&go] {
    while (!go) std::this_thread::yield();
    return OkStatus();
  });
  EXPECT_TRUE(thread.Wait(first).ok());
  EXPECT_TRUE(thread.busy());
  go = true;
  EXPECT_TRUE(thread.Wait(second).ok());
}

// A device that fails, or a host without memory, beside the training thread.
TEST(CommThreadTest, WhatATaskThrowsIsItsFailure) {
  CommThread thread("mt-test");
  bool ran = false;
  thread.Post([]() -> Status { throw kernels::DeviceError("GPU 1 has fallen off the bus"); });
  const CommThread::Ticket last = thread.Post([&ran] {
    ran = true;
    return OkStatus();
  });
  const Status status = thread.Wait(last);
  EXPECT_EQ(failure::CauseOf(status), failure::Cause::kHardware);
  EXPECT_NE(base::Message(status).find("GPU 1 has fallen off the bus"), std::string::npos);
  EXPECT_FALSE(ran);
}

TEST(CommThreadTest, NothingRunsBehindAFailure) {
  CommThread thread("mt-test");
  bool ran = false;
  thread.Post([] { return base::Unavailable("peer 3 went away"); });
  const CommThread::Ticket last = thread.Post([&ran] {
    ran = true;
    return base::Internal("another");
  });
  const Status status = thread.Wait(last);
  EXPECT_EQ(status, base::Unavailable("peer 3 went away"));
  EXPECT_EQ(thread.status(), status);
  EXPECT_FALSE(ran);
}

// Whether a thread of this process sleeps, as one that joins another does.
bool IsAsleep(pid_t thread) {
  const auto stat = base::ReadFile("/proc/self/task/" + std::to_string(thread) + "/stat");
  return stat.ok() && stat->find(") S ") != std::string::npos;
}

// The running task ends once the destructor sleeps: it has said by then that nothing else begins.
TEST(CommThreadTest, DestructionDropsWhatHasNotBegun) {
  const pid_t self = ::gettid();
  std::atomic<bool> begun = false;
  std::atomic<bool> leaves = false;
  std::atomic<int> ran = 0;
  {
    CommThread thread("mt-test");
    thread.Post([&] {
      begun = true;
      while (!leaves || !IsAsleep(self)) std::this_thread::yield();
      ++ran;
      return OkStatus();
    });
    thread.Post([&ran] {
      ++ran;
      return OkStatus();
    });
    while (!begun) std::this_thread::yield();
    leaves = true;
  }
  EXPECT_EQ(ran, 1) << "the running task ended, the other was dropped";
}

}  // namespace
}  // namespace mt::parallel
