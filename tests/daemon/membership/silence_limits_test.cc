// Which limits of silence contradict each other, and what is said of it.
#include "daemon/membership/silence_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mt::daemon {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

TEST(SilenceLimits, TheDefaultsAndTheShortestAreAllowed) {
  EXPECT_TRUE(CheckLimits({}).ok());
  EXPECT_TRUE(
      CheckLimits(
          {.suspect_after = seconds(4), .lost_after = seconds(6), .phantom_after = seconds(4)})
          .ok());
}

TEST(SilenceLimits, TheFaultIsNamedWithItsBound) {
  const Status suspect = CheckLimits({.suspect_after = milliseconds(3'999)});
  EXPECT_EQ(suspect.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(base::Message(suspect), HasSubstr("--suspect-after 3.999: must be at least 4 s"));
  // A limit that is fine by itself, and not beside another one.
  const Status lost = CheckLimits({.suspect_after = seconds(29)});
  EXPECT_THAT(base::Message(lost), HasSubstr("--lost-after 30: must be at least 31 s"));
  EXPECT_TRUE(CheckLimits({.suspect_after = seconds(28)}).ok());
  const Status phantom = CheckLimits({.phantom_after = seconds(3)});
  EXPECT_THAT(base::Message(phantom), HasSubstr("--phantom-after 3: must be at least 4 s"));
}

}  // namespace
}  // namespace mt::daemon
