// The bounded queue between the core and a reader.
#include "daemon/telemetry/subscription.h"

#include <gtest/gtest.h>

#include "common/base/status.h"

namespace mt::daemon {
namespace {

TEST(Subscription, WakesOnceWhenThereIsSomething) {
  Subscription<int> queue(4);
  int woken = 0;
  EXPECT_FALSE(queue.Take([&] { ++woken; }).item.has_value());
  queue.Push(1);
  queue.Push(2);
  EXPECT_EQ(woken, 1);
  EXPECT_EQ(queue.Take(nullptr).item, 1);
  queue.Close(base::Unavailable("stopping"));
  queue.Push(3);
  EXPECT_EQ(queue.Take(nullptr).item, 2);
  const auto end = queue.Take(nullptr);
  EXPECT_TRUE(end.ended);
  EXPECT_EQ(end.status.code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace mt::daemon
