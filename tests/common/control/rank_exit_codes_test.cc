// The one table of a rank's exit codes, against a list written by hand.
#include "common/control/rank_exit_codes.h"

#include <algorithm>
#include <iterator>

#include <gtest/gtest.h>

#include "megatrain/v1/types.pb.h"

namespace mt::control {
namespace {

namespace v1 = megatrain::v1;
using enum RestartBudget;

struct Row {
  int code;
  v1::Cause cause;
  RestartBudget budget;
};
constexpr Row kExpected[] = {
    {64, v1::USER_ERROR, kNever},
    {65, v1::PREFLIGHT_FAILED, kInfrastructure},
    {70, v1::INTERNAL, kInfrastructure},
    {71, v1::HARDWARE, kInfrastructure},
    {72, v1::HARDWARE, kInfrastructure},
    {73, v1::STORAGE, kStorage},
    {74, v1::NUMERIC, kNever},
    {75, v1::NETWORK, kInfrastructure},
    {76, v1::STORAGE, kStorage},
    {93, v1::USER_ERROR, kNever},
    {127, v1::INTERNAL, kInfrastructure},
};

TEST(RankExitCodes, EachHasItsCauseAndBudget) {
  EXPECT_EQ(std::size(kExpected), kRankExits.size());
  for (const Row& row : kExpected) {
    const RankExitMeaning meaning = MeaningOfExit(row.code);
    EXPECT_EQ(meaning.code, row.code);
    EXPECT_EQ(static_cast<v1::Cause>(meaning.cause), row.cause) << row.code;
    EXPECT_EQ(meaning.budget, row.budget) << row.code;
    EXPECT_EQ(meaning.elsewhere, row.code == 65) << row.code;
    EXPECT_EQ(meaning.slot_is_done, row.code == 72) << row.code;
    EXPECT_NE(std::string(meaning.text), "unexpected") << row.code;
  }
}

TEST(RankExitCodes, WhatIsNotListedIsTheMachinerysFault) {
  for (const int code : {1, 2, 66, 134, 137, 255}) {
    const RankExitMeaning meaning = MeaningOfExit(code);
    EXPECT_EQ(meaning.cause, ExitCause::kInternal) << code;
    EXPECT_EQ(meaning.budget, kInfrastructure) << code;
    EXPECT_FALSE(meaning.elsewhere || meaning.slot_is_done) << code;
  }
}

TEST(RankExitCodes, NoCodeIsThereTwice) {
  for (const RankExitMeaning& one : kRankExits)
    EXPECT_EQ(std::ranges::count(kRankExits, one.code, &RankExitMeaning::code), 1) << one.code;
}

}  // namespace
}  // namespace mt::control
