// Epochs: terms and counts in one number, what follows, and how they are shown.
#include "common/control/epoch.h"

#include <gtest/gtest.h>

namespace mt::control {
namespace {

constexpr int64_t At(int64_t term, int64_t count) { return (term << kEpochCountBits) | count; }

TEST(EpochTest, CountsWithinItsTerm) {
  EXPECT_EQ(NextEpoch(0, 1), At(1, 1));
  EXPECT_EQ(NextEpoch(At(1, 1), 1), At(1, 2));
  EXPECT_EQ(NextEpoch(At(1, 7), 2), At(2, 1));
  EXPECT_EQ(TermOfEpoch(At(5, 3)), 5);
  EXPECT_EQ(CountOfEpoch(At(5, 3)), 3);
}

TEST(EpochTest, EpochsOfBeforeThereWereTermsAreOfTermZero) {
  EXPECT_EQ(TermOfEpoch(3), 0);
  EXPECT_EQ(NextEpoch(3, 0), 4);
  EXPECT_EQ(NextEpoch(3, 1), At(1, 1));
}

TEST(EpochTest, ATermThatHasNoMoreGivesNoneInsteadOfAnotherTermsOnes) {
  EXPECT_EQ(NextEpoch(At(4, kEpochCounts - 2), 4), At(4, kEpochCounts - 1));
  EXPECT_EQ(NextEpoch(At(4, kEpochCounts - 1), 4), 0);
  EXPECT_EQ(NextEpoch(At(4, kEpochCounts - 1), 5), At(5, 1));
}

TEST(EpochTest, AJobAdoptedFromAnotherClusterGoesOnInItsLaterTerm) {
  EXPECT_EQ(NextEpoch(At(9, 2), 1), At(9, 3));
}

TEST(EpochTest, ADeclaredRestoreIsBeyondEveryStart) {
  EXPECT_GT(NextEpoch(0, 1 + kRestoreTerms), At(kRestoreTerms, kEpochCounts - 1));
  EXPECT_EQ(EpochText(NextEpoch(0, 1 + kRestoreTerms)), "1048577.1");
}

// The history and readers of JSON hold an epoch as a double.
TEST(EpochTest, TheLastEpochOfTheLastTermIsExactAsADouble) {
  const int64_t last = At(kMaxTerm, kEpochCounts - 1);
  EXPECT_EQ(static_cast<int64_t>(static_cast<double>(last)), last);
  EXPECT_NE(static_cast<double>(last), static_cast<double>(last - 1));
}

TEST(EpochTest, IsShownAsTermAndCount) {
  EXPECT_EQ(EpochText(3), "3");
  EXPECT_EQ(EpochText(At(5, 3)), "5.3");
}

}  // namespace
}  // namespace mt::control
