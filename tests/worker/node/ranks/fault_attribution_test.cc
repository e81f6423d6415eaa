// The rank that is to blame, for each order in which faults and exits can come.
#include "worker/node/ranks/fault_attribution.h"

#include <gtest/gtest.h>

#include "common/control/rank_exit_codes.h"
#include "megatrain/v1/types.pb.h"

namespace mt::node {
namespace {

LocalRank Ended(int rank, int code, int signal = 0) {
  LocalRank ended;
  ended.rank = rank;
  ended.gone = true;
  ended.exit = {.known = true, .code = code, .signal = signal, .error = {}, .unsent = {}};
  return ended;
}

TEST(FaultAttribution, ACleanExitIsNobodysFault) {
  FaultAttribution faults;
  const auto outcome = faults.OnExit(Ended(0, 0), "; device last at step 1");
  ASSERT_EQ(outcome.conclusions.size(), 1U);
  EXPECT_FALSE(outcome.conclusions[0].at_fault);
  EXPECT_EQ(outcome.conclusions[0].message, "");
  EXPECT_EQ(outcome.abort_reason, "");
}

TEST(FaultAttribution, TheFirstToFailIsTheCulprit) {
  FaultAttribution faults;
  const auto first = faults.OnExit(Ended(1, 0, 9), "; device last at step 1");
  ASSERT_EQ(first.conclusions.size(), 1U);
  EXPECT_TRUE(first.conclusions[0].at_fault);
  EXPECT_EQ(first.conclusions[0].message, "killed by signal 9 (Killed); device last at step 1");
  EXPECT_EQ(first.abort_reason,
            "rank 1 failed: killed by signal 9 (Killed); device last at step 1");
  const auto second = faults.OnExit(Ended(0, control::kExitInternal), "");
  ASSERT_EQ(second.conclusions.size(), 1U);
  EXPECT_FALSE(second.conclusions[0].at_fault);
  EXPECT_EQ(second.conclusions[0].message,
            "ended after rank 1 failed: exit code 70 (engine or collectives)");
  EXPECT_EQ(second.abort_reason, "");
}

TEST(FaultAttribution, AConsequenceWaitsForItsCulprit) {
  FaultAttribution faults;
  const auto lost = faults.OnExit(Ended(0, control::kExitTransient), "");
  EXPECT_TRUE(lost.conclusions.empty());
  EXPECT_EQ(lost.abort_reason, "rank 0 left: exit code 75 (lost its peers)");
  const auto failed = faults.OnExit(Ended(1, control::kExitNonfinite), "");
  ASSERT_EQ(failed.conclusions.size(), 2U);
  EXPECT_EQ(failed.conclusions[0].rank, 1);
  EXPECT_TRUE(failed.conclusions[0].at_fault);
  EXPECT_EQ(failed.conclusions[0].cause, megatrain::v1::NUMERIC);
  EXPECT_EQ(failed.conclusions[1].rank, 0);
  EXPECT_FALSE(failed.conclusions[1].at_fault);
  EXPECT_TRUE(faults.OnAllGone().empty());
}

TEST(FaultAttribution, WithoutACulpritTheCauseLiesOnAnotherNode) {
  FaultAttribution faults;
  LocalRank killed = Ended(1, 0, 9);
  killed.killed_by_agent = true;
  EXPECT_TRUE(faults.OnExit(killed, "").conclusions.empty());
  EXPECT_TRUE(faults.OnExit(Ended(0, control::kExitTransient), "").conclusions.empty());
  const auto conclusions = faults.OnAllGone();
  ASSERT_EQ(conclusions.size(), 2U);
  EXPECT_EQ(conclusions[0].rank, 0);
  EXPECT_TRUE(conclusions[0].at_fault);
  EXPECT_EQ(conclusions[0].cause, megatrain::v1::NETWORK);
  EXPECT_TRUE(conclusions[1].at_fault);
  EXPECT_TRUE(faults.OnAllGone().empty());
}

TEST(FaultAttribution, AReportedFaultNamesTheCulpritBeforeItsExit) {
  FaultAttribution faults;
  LocalRank culprit = Ended(2, control::kExitNonfinite);
  culprit.fault = {.cause = megatrain::v1::NUMERIC, .message = "loss is nan", .exit_code = 74};
  faults.OnFault(culprit);
  LocalRank other = Ended(1, control::kExitTransient);
  other.fault = {.cause = megatrain::v1::NETWORK, .message = "lost a peer", .exit_code = 75};
  faults.OnFault(other);
  EXPECT_TRUE(faults.OnExit(other, "").conclusions.empty()) << "the culprit's comes first";
  culprit.killed_by_agent = true;  // too late to excuse it
  const auto outcome = faults.OnExit(culprit, "");
  ASSERT_EQ(outcome.conclusions.size(), 2U);
  EXPECT_EQ(outcome.conclusions[0].rank, 2);
  EXPECT_TRUE(outcome.conclusions[0].at_fault);
  EXPECT_EQ(outcome.conclusions[1].message,
            "ended after rank 2 failed: lost a peer; exit code 75 (lost its peers)");
  EXPECT_EQ(faults.OnExit(Ended(0, control::kExitTransient), "").conclusions.size(), 1U);
  EXPECT_TRUE(faults.OnAllGone().empty());
}

TEST(FaultAttribution, ACulpritThatIsNeverConcludedKeepsNobodyWaitingForEver) {
  FaultAttribution faults;
  LocalRank culprit = Ended(2, 0);
  culprit.fault = {.cause = megatrain::v1::NUMERIC, .message = "loss is nan", .exit_code = 74};
  faults.OnFault(culprit);
  EXPECT_TRUE(faults.OnExit(Ended(0, control::kExitTransient), "").conclusions.empty());
  EXPECT_EQ(faults.OnExit(culprit, "").conclusions.size(), 1U);
  EXPECT_EQ(faults.OnAllGone().size(), 1U);
}

TEST(FaultAttribution, RanksThatAreToldToEndHaveTheReasonOfTheEnd) {
  for (const bool asked : {true, false}) {
    FaultAttribution faults;
    faults.OnEnd("stopping", asked);
    LocalRank rank = Ended(0, 0, 15);
    rank.fault = {.cause = megatrain::v1::NUMERIC, .message = "late", .exit_code = 74};
    faults.OnFault(rank);  // of no consequence: the end came first
    const auto outcome = faults.OnExit(rank, "");
    ASSERT_EQ(outcome.conclusions.size(), 1U);
    EXPECT_EQ(outcome.conclusions[0].at_fault, !asked);
    EXPECT_EQ(outcome.conclusions[0].cause, megatrain::v1::INTERNAL);
    EXPECT_EQ(outcome.conclusions[0].message, "stopping");
    EXPECT_EQ(outcome.abort_reason, "");
  }
}

}  // namespace
}  // namespace mt::node
