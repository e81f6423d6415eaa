// What faults cost: budgets (R1), delays (R2), and whether a job comes any further.
#include "daemon/jobs/restarts.h"

#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include "daemon/jobs/verdict.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

namespace v1 = megatrain::v1;
using control::RestartBudget;
using std::chrono::seconds;

constexpr int64_t kSecond = 1'000'000;
constexpr int64_t kHour = 3'600 * kSecond;

class RestartsTest : public ::testing::Test {
 protected:
  RestartsTest() {
    auto& limits = *spec_.mutable_resilience()->mutable_max_restarts();
    limits.set_user(3);
    limits.set_hang(3);
    limits.set_storage(3);
    limits.set_no_progress(3);
    limits.set_infra_per_hour(10);
  }
  // A fault `later` after the one before, with so many steps more than any before.
  RestartChoice Fault(RestartBudget budget, int64_t later = kSecond, int64_t steps = 1) {
    now_us_ += later;
    step_ += steps;
    return SpendRestart(spec_, {.budget = budget, .step = step_, .now_us = now_us_, .job_uid = "j"},
                        &spent_);
  }

  v1::JobSpec spec_;
  v1::Restarts spent_;
  int64_t now_us_ = 1'800'000'000 * kSecond;
  int64_t step_ = 0;
};

TEST_F(RestartsTest, CodesAndCausesNameTheirBudgets) {
  const auto of = [](v1::Cause cause, int code) {
    return BudgetOf({.cause = cause, .message = "", .exit_code = code});
  };
  EXPECT_EQ(of(v1::USER_ERROR, 64), RestartBudget::kNever);
  EXPECT_EQ(of(v1::NUMERIC, 74), RestartBudget::kNever);
  EXPECT_EQ(of(v1::USER_ERROR, 93), RestartBudget::kNever);
  EXPECT_EQ(of(v1::STORAGE, 73), RestartBudget::kStorage);
  EXPECT_EQ(of(v1::STORAGE, 76), RestartBudget::kStorage);
  for (const int code : {65, 70, 71, 72, 75, 127, 1})
    EXPECT_EQ(of(v1::INTERNAL, code), RestartBudget::kInfrastructure) << code;
  // Memory that did not suffice ends a rank with 64, and a call that hangs with 70.
  EXPECT_EQ(of(v1::OOM, 64), RestartBudget::kUser);
  EXPECT_EQ(of(v1::HANG, 70), RestartBudget::kHang);
  // A signal, an end that nobody saw, and what the coordinator has judged by itself.
  EXPECT_EQ(of(v1::INTERNAL, 0), RestartBudget::kInfrastructure);
  EXPECT_EQ(of(v1::HARDWARE, 0), RestartBudget::kInfrastructure);
  EXPECT_EQ(of(v1::STORAGE, 0), RestartBudget::kStorage);
  EXPECT_EQ(of(v1::DEADLINE, 0), RestartBudget::kNever);
  EXPECT_EQ(of(v1::USER_ERROR, 0), RestartBudget::kNever);
}

TEST_F(RestartsTest, EachBudgetIsItsOwn) {
  for (const auto budget : {RestartBudget::kUser, RestartBudget::kHang, RestartBudget::kStorage}) {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(Fault(budget).allowed) << i;
    const RestartChoice refused = Fault(budget);
    EXPECT_FALSE(refused.allowed);
    EXPECT_EQ(refused.why, "all 3 restarts of resilience.max_restarts." +
                               std::string(BudgetName(budget)) + " are spent");
  }
  EXPECT_EQ(spent_.user(), 3);
  EXPECT_EQ(spent_.hang(), 3);
  EXPECT_EQ(spent_.storage(), 3);
  EXPECT_EQ(spent_.infrastructure(), 0);
  EXPECT_EQ(Fault(RestartBudget::kNever).why, "");
}

TEST_F(RestartsTest, FaultsOfTheMachineryAreForgottenAfterAnHour) {
  for (int i = 0; i < 10; ++i)
    EXPECT_TRUE(Fault(RestartBudget::kInfrastructure, kHour / 20).allowed);
  const RestartChoice refused = Fault(RestartBudget::kInfrastructure);
  EXPECT_FALSE(refused.allowed);
  EXPECT_EQ(refused.why, "all 10 restarts of resilience.max_restarts.infra_per_hour are spent");
  // The oldest is an hour old.
  EXPECT_TRUE(Fault(RestartBudget::kInfrastructure, kHour / 2 + kHour / 20).allowed);
  EXPECT_EQ(spent_.infrastructure(), 11);
}

TEST_F(RestartsTest, AJobThatComesNoFurtherIsGivenUpAfterTheThird) {
  EXPECT_TRUE(Fault(RestartBudget::kInfrastructure, kSecond, /*steps=*/7).allowed);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(Fault(RestartBudget::kInfrastructure, kSecond, 0).allowed);
  const RestartChoice refused = Fault(RestartBudget::kInfrastructure, kSecond, 0);
  EXPECT_FALSE(refused.allowed);
  EXPECT_TRUE(refused.no_progress);
  EXPECT_EQ(refused.why,
            "no step beyond step 7 in 3 restarts (resilience.max_restarts.no_progress)");
  // A step more, and all is well.
  EXPECT_TRUE(Fault(RestartBudget::kInfrastructure, kSecond, 1).allowed);
  EXPECT_EQ(spent_.no_progress(), 0);
  EXPECT_EQ(spent_.best_step(), 8);
  // Steps that are trained again are none beyond.
  step_ = 3;
  EXPECT_TRUE(Fault(RestartBudget::kInfrastructure, kSecond, 1).allowed);
  EXPECT_EQ(spent_.no_progress(), 1);
  EXPECT_EQ(spent_.best_step(), 8);
}

TEST_F(RestartsTest, StoredZerosAreNoBudgets) {
  spec_.clear_resilience();
  for (const auto budget : {RestartBudget::kUser, RestartBudget::kHang, RestartBudget::kStorage,
                            RestartBudget::kInfrastructure}) {
    const RestartChoice refused = Fault(budget);
    EXPECT_FALSE(refused.allowed);
    EXPECT_EQ(refused.why, "");
  }
  EXPECT_EQ(spent_.ByteSizeLong(), 0U);
}

TEST_F(RestartsTest, TheFirstIsAtOnceAndTheNextOnesWaitLonger) {
  int64_t expected[] = {0, 5, 10, 20, 40, 80, 160, 300, 300};
  for (const int64_t base : expected) {
    ASSERT_TRUE(Fault(RestartBudget::kInfrastructure, kHour / 4).allowed);
    if (base == 0) {
      EXPECT_EQ(spent_.not_before_us(), 0);
      continue;
    }
    const int64_t delay = spent_.not_before_us() - now_us_;
    EXPECT_GE(delay, base * kSecond * 8 / 10);
    EXPECT_LE(delay, base * kSecond * 12 / 10);
  }
  // The same job and number wait as long, others do not.
  EXPECT_EQ(RestartDelay(4, "a"), RestartDelay(4, "a"));
  EXPECT_NE(RestartDelay(4, "a"), RestartDelay(4, "b"));
  EXPECT_EQ(RetryDelay(1), seconds(0));
  EXPECT_EQ(RetryDelay(2), seconds(5));
  EXPECT_EQ(RetryDelay(100), seconds(300));
}

TEST_F(RestartsTest, AnHourOfHealthBeginsTheDelaysAnew) {
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Fault(RestartBudget::kInfrastructure).allowed);
  EXPECT_EQ(spent_.in_a_row(), 4);
  const int64_t ready_us = now_us_ + kSecond;
  now_us_ = ready_us + kHour;
  ASSERT_TRUE(SpendRestart(spec_,
                           {.budget = RestartBudget::kInfrastructure,
                            .step = ++step_,
                            .now_us = now_us_,
                            .ready_us = ready_us,
                            .job_uid = "j"},
                           &spent_)
                  .allowed);
  EXPECT_EQ(spent_.in_a_row(), 1);
  EXPECT_EQ(spent_.not_before_us(), 0);
}

TEST_F(RestartsTest, AConsequenceIsChargedToItsCause) {
  ASSERT_TRUE(Fault(RestartBudget::kInfrastructure).allowed);
  const RestartFacts oom{.budget = RestartBudget::kUser, .now_us = now_us_};
  EXPECT_TRUE(MoveRestart(spec_, RestartBudget::kInfrastructure, oom, &spent_).allowed);
  EXPECT_EQ(spent_.user(), 1);
  EXPECT_EQ(spent_.infrastructure(), 0);
  EXPECT_EQ(spent_.infrastructure_us_size(), 0);
  const RestartFacts never{.budget = RestartBudget::kNever, .now_us = now_us_};
  EXPECT_FALSE(MoveRestart(spec_, RestartBudget::kUser, never, &spent_).allowed);
  EXPECT_EQ(spent_.user(), 0);
}

TEST_F(RestartsTest, WhatWasNoFailureCountsNowhere) {
  ASSERT_TRUE(Fault(RestartBudget::kInfrastructure).allowed);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(Fault(RestartBudget::kInfrastructure, kSecond, 0).allowed) << i;
    EXPECT_EQ(spent_.no_progress(), 1);
    EXPECT_EQ(spent_.in_a_row(), 2);
    RefundRestart(RestartBudget::kInfrastructure, &spent_);
  }
  EXPECT_EQ(spent_.infrastructure(), 1);
  EXPECT_EQ(spent_.infrastructure_us_size(), 1);
  EXPECT_EQ(spent_.no_progress(), 0);
}

}  // namespace
}  // namespace mt::daemon
