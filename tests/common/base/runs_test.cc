// Strided runs against an explicit table of places.
#include "common/base/runs.h"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace mt::base {
namespace {

// The places of 40 elements, beginning `skip` elements into a run, found by walking over them.
std::vector<int64_t> Walk(const Runs& runs) {
  std::vector<int64_t> places;
  for (int64_t place = runs.skip; places.size() < 40; ++place) {
    if (place % runs.stride < runs.length) places.push_back(place - runs.skip);
  }
  return places;
}

const Runs kCases[] = {
    {},
    {.length = 3, .stride = 5},
    {.length = 3, .stride = 5, .skip = 2},
    {.length = 1, .stride = 4},
    {.length = 7, .stride = 7, .skip = 3},
    {.length = 100, .stride = 112, .skip = 75},
};

TEST(RunsTest, PlacesAndCountsAreTheWalks) {
  for (const Runs& runs : kCases) {
    const std::vector<int64_t> places = Walk(runs);
    for (size_t i = 0; i < places.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      EXPECT_EQ(runs.At(at), places[i]);
      EXPECT_EQ(runs.Span(at + 1), places[i] + 1);
      EXPECT_EQ(runs.CountIn(places[i]), at);
      EXPECT_EQ(runs.CountIn(places[i] + 1), at + 1);
      const Runs rest = runs.From(at);
      for (size_t j = i; j < places.size(); ++j) {
        EXPECT_EQ(rest.At(static_cast<int64_t>(j - i)), places[j] - places[i]);
      }
    }
    EXPECT_EQ(runs.Span(0), 0);
    EXPECT_EQ(runs.CountIn(0), 0);
  }
}

TEST(RunsTest, GapsCountNothing) {
  const Runs runs{.length = 3, .stride = 5, .skip = 2};  // x..xxx..xxx
  EXPECT_EQ(runs.CountIn(1), 1);
  EXPECT_EQ(runs.CountIn(2), 1);
  EXPECT_EQ(runs.CountIn(3), 1);
  EXPECT_EQ(runs.CountIn(4), 2);
  EXPECT_EQ(runs.LeftInRun(0), 1);
  EXPECT_EQ(runs.LeftInRun(1), 3);
  EXPECT_EQ(runs.LeftInRun(3), 1);
  EXPECT_FALSE(runs.contiguous());
  EXPECT_TRUE(Runs{}.contiguous());
}

TEST(RunsTest, CopiesAreThereAndBackAndLeaveGaps) {
  for (const Runs& runs : kCases) {
    constexpr int64_t kCount = 230;
    std::vector<int32_t> packed(kCount);
    std::iota(packed.begin(), packed.end(), 1);
    std::vector<int32_t> spread(static_cast<size_t>(runs.Span(kCount)), -1);
    CopyToRuns(runs, kCount, 4, packed.data(), spread.data());
    int64_t gaps = 0;
    for (const int32_t value : spread) gaps += value == -1 ? 1 : 0;
    EXPECT_EQ(gaps, runs.Span(kCount) - kCount);
    EXPECT_EQ(spread[static_cast<size_t>(runs.At(kCount / 2))], kCount / 2 + 1);
    std::vector<int32_t> back(kCount, 0);
    CopyFromRuns(runs, kCount, 4, spread.data(), back.data());
    EXPECT_EQ(back, packed);
  }
}

}  // namespace
}  // namespace mt::base
