// Work on several threads: each piece once, and exceptions reach the caller, whichever thread
// throws.
#include "worker/checkpoint/format/parallel_tasks.h"

#include <atomic>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace mt::checkpoint {
namespace {

TEST(ParallelTasksTest, EachRunsOnce) {
  for (const int threads : {1, 4, 200}) {
    std::vector<std::atomic<int>> runs(100);
    RunTasks(100, threads, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
    for (const auto& count : runs) EXPECT_EQ(count, 1);
  }
}

TEST(ParallelTasksTest, WhatATaskThrowsReachesTheCallerAndNoOtherBegins) {
  for (const int threads : {1, 4}) {
    std::atomic<int> begun = 0;
    try {
      RunTasks(1'000'000, threads, [&](int64_t i) {
        ++begun;
        if (i >= 3) throw std::runtime_error("the device is lost");
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "the device is lost");
    }
    EXPECT_LE(begun, 3 + threads);
  }
}

}  // namespace
}  // namespace mt::checkpoint
