// Checks, integer arithmetic, status, clock and ids.
#include <cerrno>
#include <set>

#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/math.h"
#include "common/base/mutex.h"
#include "common/base/status.h"

namespace mt::base {
namespace {

TEST(CheckDeathTest, PrintsBothValuesAndTheReason) {
  EXPECT_DEATH(CHECK_EQ(1 + 1, 3) << "because",
               "base_test.cc:[0-9]+.*1 \\+ 1 == 3 \\(2 vs 3\\).*because");
  EXPECT_DEATH(CHECK(false) << "why", "false.*why");
  int evaluated = 0;
  CHECK_EQ(++evaluated, 1);
  EXPECT_EQ(evaluated, 1);
}

TEST(Math, DivisionsAndNarrowing) {
  EXPECT_EQ(DivExact(12, 4), 3);
  EXPECT_EQ(CeilDiv(13, 4), 4);
  EXPECT_EQ(RoundUp(50257, 128), 50304);
  EXPECT_EQ(CheckedCast<uint8_t>(int64_t{255}), 255);
  EXPECT_DEATH(DivExact(13, 4), "13 is not a multiple of 4");
  EXPECT_DEATH(CheckedCast<uint8_t>(int64_t{256}), "narrowing of 256");
  EXPECT_DEATH(CheckedCast<uint64_t>(int64_t{-1}), "narrowing of -1");
}

Status FailFor(int n) { return n > 0 ? InvalidArgument("n is {}", n) : OkStatus(); }
StatusOr<int> Twice(int n) {
  RETURN_IF_ERROR(FailFor(n));
  ASSIGN_OR_RETURN(const int same, StatusOr<int>(n));
  return 2 * same;
}

TEST(StatusTest, MacrosPassErrorsOn) {
  EXPECT_EQ(*Twice(-2), -4);
  EXPECT_EQ(Message(Twice(3).status()), "n is 3");
  EXPECT_EQ(Twice(3).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(StatusTest, ErrnoAndAnnotation) {
  const Status status = ErrnoError(ENOSPC, "write x");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Message(status), "write x: No space left on device");
  EXPECT_EQ(Message(Annotate(status, "step 7")), "step 7: write x: No space left on device");
  EXPECT_TRUE(Annotate(OkStatus(), "step 7").ok());
  EXPECT_EQ(ErrnoError(ENOENT, "").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrnoError(EADDRINUSE, "").code(), absl::StatusCode::kUnavailable);
}

TEST(ClockTest, ManualClockStandsUntilAdvanced) {
  ManualClock clock;
  const MonotonicTime before = clock.Now();
  const WallTime wall = clock.WallNow();
  EXPECT_EQ(clock.Now(), before);
  clock.Advance(std::chrono::seconds(3));
  EXPECT_EQ(clock.Now() - before, std::chrono::seconds(3));
  EXPECT_EQ(clock.WallNow() - wall, std::chrono::seconds(3));
  const MonotonicTime real = Clock::Real()->Now();
  EXPECT_GE(Clock::Real()->Now(), real);
}

TEST(ClockTest, FormatsUtc) {
  EXPECT_EQ(FormatUtc(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(FormatUtc(1'767'323'045'000'006), "2026-01-02T03:04:05Z");
  EXPECT_EQ(ToUnixMicros(WallTime(std::chrono::microseconds(42))), 42);
}

TEST(Ids, UidsAreVersion4AndDiffer) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const std::string uid = NewUid();
    ASSERT_EQ(uid.size(), 36u);
    EXPECT_EQ(uid[14], '4');
    EXPECT_NE(std::string("89ab").find(uid[19]), std::string::npos);
    EXPECT_TRUE(IsUid(uid)) << uid;
    seen.insert(uid);
  }
  EXPECT_EQ(seen.size(), 100u);
  EXPECT_EQ(RandomHex(16).size(), 32u);
  EXPECT_NE(RandomHex(16), RandomHex(16));
}

TEST(Ids, OnlyUidsAreUids) {
  const std::string uid = "0189abcd-0123-4567-89ab-0123456789ab";
  EXPECT_TRUE(IsUid(uid));
  for (const char* other :
       {"", "0189abcd", "0189abcd-0123-4567-89ab-0123456789a",
        "0189abcd-0123-4567-89ab-0123456789abc", "0189ABCD-0123-4567-89ab-0123456789ab",
        "0189abcd-0123-1567-89ab-0123456789ab", "0189abcd-0123-4567-c9ab-0123456789ab",
        "0189abcd/0123-4567-89ab-0123456789ab", "g189abcd-0123-4567-89ab-0123456789ab"}) {
    EXPECT_FALSE(IsUid(other)) << other;
  }
}

// Values of the reference implementation (xxHash 0.8), on which the checkpoint format depends.
TEST(Ids, HashesAreStable) {
  EXPECT_EQ(Hash64(""), 0x2d06800538d394c2u);
  EXPECT_EQ(Hash128Hex(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(Hash128Of(""), (Hash128Value{0x99aa06d3014798d8, 0x6001c324468d497f}));
  EXPECT_EQ(ParseHash128(Hash128Hex("")), Hash128Of(""));
  EXPECT_EQ(HexOf({0xf, 0xa000000000000000}), "000000000000000fa000000000000000");
  for (const char* other : {"", "99aa06d3014798d86001c324468d497",
                            "99aa06d3014798d86001c324468d497f0", "99AA06D3014798D86001C324468D497F",
                            "99aa06d3014798d86001c324468d497g", "99aa06d3014798d86001c324468d497/",
                            "99aa06d3014798d86001c324468d497:", "99aa06d3014798d86001c324468d497`"})
    EXPECT_FALSE(ParseHash128(other).has_value()) << other;
  Hash128 pieces;
  EXPECT_EQ(pieces.Take(), Hash128Hex(""));
  const std::string text(1000, 'x');
  pieces.Add("ab");
  pieces.Add("");
  pieces.Add(text);
  EXPECT_EQ(pieces.Take(), Hash128Hex("ab" + text));
  pieces.Add("c");
  EXPECT_EQ(pieces.Take(), Hash128Hex("c")) << "starts anew";
  EXPECT_NE(Hash64("a", 1), Hash64("a", 2));
}

TEST(MutexTest, CondVarTimesOut) {
  Mutex mu;
  CondVar cv;
  const MutexLock lock(&mu);
  EXPECT_FALSE(cv.WaitUntil(&mu, std::chrono::steady_clock::now() - std::chrono::seconds(1)));
}

}  // namespace
}  // namespace mt::base
