// The tables of states: every pair of state and event, listed or not.
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/jobs/job_states.h"
#include "daemon/jobs/rank_states.h"
#include "daemon/jobs/verdict.h"
#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

namespace v1 = megatrain::v1;

std::vector<JobPosition> AllPositions() {
  std::vector<JobPosition> all;
  for (const auto state : {v1::QUEUED, v1::ADMITTED, v1::STARTING, v1::RUNNING, v1::SUCCEEDED,
                           v1::FAILED, v1::CANCELLED}) {
    all.push_back({state, v1::JOB_STATE_UNSPECIFIED});
  }
  for (const auto to : {v1::SUCCEEDED, v1::FAILED, v1::CANCELLED})
    all.push_back({v1::STOPPING, to});
  return all;
}

// Written out by hand from the design's table, not from the code.
const char* Expected(const std::string& from, JobEvent event) {
  struct Row {
    const char* from;
    JobEvent event;
    const char* to;
  };
  static constexpr Row kRows[] = {
      {"QUEUED", JobEvent::kPlaced, "ADMITTED"},
      {"QUEUED", JobEvent::kCancel, "CANCELLED"},
      {"QUEUED", JobEvent::kFault, "FAILED"},
      {"ADMITTED", JobEvent::kAllAccepted, "STARTING"},
      {"ADMITTED", JobEvent::kPlacementFailed, "QUEUED"},
      {"ADMITTED", JobEvent::kFault, "STOPPING(FAILED)"},
      {"ADMITTED", JobEvent::kCancel, "STOPPING(CANCELLED)"},
      {"STARTING", JobEvent::kAllReady, "RUNNING"},
      {"STARTING", JobEvent::kFault, "STOPPING(FAILED)"},
      {"STARTING", JobEvent::kCancel, "STOPPING(CANCELLED)"},
      {"RUNNING", JobEvent::kTrainingEnded, "STOPPING(SUCCEEDED)"},
      {"RUNNING", JobEvent::kFault, "STOPPING(FAILED)"},
      {"RUNNING", JobEvent::kCancel, "STOPPING(CANCELLED)"},
      {"STOPPING(SUCCEEDED)", JobEvent::kRanksGone, "SUCCEEDED"},
      {"STOPPING(FAILED)", JobEvent::kRanksGone, "FAILED"},
      {"STOPPING(CANCELLED)", JobEvent::kRanksGone, "CANCELLED"},
  };
  for (const Row& row : kRows) {
    if (row.from == from && row.event == event) return row.to;
  }
  return nullptr;
}

TEST(JobStates, EveryPair) {
  JobStateMachine machine;
  int64_t refused = 0;
  int allowed = 0;
  for (const JobPosition from : AllPositions()) {
    for (int i = 0; i < kNumJobEvents; ++i) {
      const auto event = static_cast<JobEvent>(i);
      const std::string name = PositionName(from);
      const auto next = machine.Next(from, event);
      const char* expected = Expected(name, event);
      if (expected != nullptr) {
        ASSERT_TRUE(next.ok()) << name << " " << EventName(event);
        EXPECT_EQ(PositionName(*next), expected);
        ++allowed;
      } else {
        EXPECT_EQ(next.status().code(), absl::StatusCode::kFailedPrecondition)
            << name << " " << EventName(event);
        EXPECT_NE(base::Message(next.status()).find(name), std::string::npos);
        ++refused;
      }
      EXPECT_EQ(machine.num_refused(), refused);
    }
  }
  EXPECT_EQ(allowed, static_cast<int>(JobTransitions().size()));
  EXPECT_EQ(refused, 10 * kNumJobEvents - 16);
}

TEST(JobStates, FinalStatesHaveNoWayOut) {
  for (const JobTransition& row : JobTransitions()) EXPECT_FALSE(IsFinal(row.from.state));
  EXPECT_EQ(AllowedVerbs(v1::RUNNING), "cancel");
  EXPECT_EQ(AllowedVerbs(v1::STOPPING), "nothing");
}

TEST(RankStates, ForwardOnly) {
  const std::vector<v1::RankState> life = {v1::SPAWNED, v1::CONNECTED, v1::COMM_INIT, v1::LOADING,
                                           v1::READY,   v1::TRAINING,  v1::EXITING};
  for (size_t i = 0; i < life.size(); ++i) {
    EXPECT_TRUE(RankMayMove(v1::RANK_STATE_UNSPECIFIED, life[i]));
    for (size_t j = 0; j < life.size(); ++j) EXPECT_EQ(RankMayMove(life[i], life[j]), j >= i);
    for (const auto end : {v1::DONE, v1::FAULTED, v1::UNKNOWN})
      EXPECT_TRUE(RankMayMove(life[i], end));
    EXPECT_FALSE(RankMayMove(v1::DONE, life[i]));
    EXPECT_FALSE(RankMayMove(v1::FAULTED, life[i]));
    EXPECT_TRUE(RankMayMove(v1::UNKNOWN, life[i]));
    EXPECT_FALSE(RankMayMove(life[i], v1::RANK_STATE_UNSPECIFIED));
  }
  EXPECT_FALSE(RankMayMove(v1::DONE, v1::FAULTED));
  EXPECT_FALSE(RankMayMove(v1::FAULTED, v1::UNKNOWN));
}

TEST(AllocationStates, EveryPair) {
  const std::set<std::pair<v1::AllocationState, v1::AllocationState>> listed = {
      {v1::RESERVED, v1::ACCEPTED},   {v1::RESERVED, v1::RELEASED},
      {v1::RESERVED, v1::FREEING},    {v1::RESERVED, v1::UNREACHABLE},
      {v1::ACCEPTED, v1::ACTIVE},     {v1::ACCEPTED, v1::FREEING},
      {v1::ACCEPTED, v1::RELEASED},   {v1::ACCEPTED, v1::UNREACHABLE},
      {v1::ACTIVE, v1::FREEING},      {v1::ACTIVE, v1::RELEASED},
      {v1::ACTIVE, v1::UNREACHABLE},  {v1::FREEING, v1::RELEASED},
      {v1::FREEING, v1::UNREACHABLE}, {v1::UNREACHABLE, v1::FREEING},
      {v1::UNREACHABLE, v1::RELEASED}};
  for (int from = 1; from <= 6; ++from) {
    for (int to = 1; to <= 6; ++to) {
      const auto a = static_cast<v1::AllocationState>(from);
      const auto b = static_cast<v1::AllocationState>(to);
      EXPECT_EQ(AllocationMayMove(a, b), listed.contains({a, b})) << from << " " << to;
    }
  }
}

v1::RankReport Ended(int code, int signal) {
  v1::RankReport report;
  report.mutable_status()->set_rank(3);
  report.mutable_status()->set_node("n1");
  report.mutable_status()->set_exited(true);
  report.mutable_status()->set_exit_code(code);
  report.mutable_status()->set_exit_signal(signal);
  return report;
}

TEST(Verdict, NamesRankNodeAndSignal) {
  v1::RankReport report = Ended(0, 9);
  report.add_last_log_lines("last words");
  ASSERT_TRUE(IsFailure(report));
  const Verdict verdict = JudgeRank(report);
  EXPECT_EQ(verdict.rank, 3);
  EXPECT_EQ(verdict.cause, v1::INTERNAL);
  EXPECT_EQ(verdict.message, "rank 3 on node n1 was ended by SIGKILL (signal 9)");
  EXPECT_EQ(verdict.last_log_lines, std::vector<std::string>{"last words"});
  EXPECT_FALSE(verdict.secondary);
}

TEST(Verdict, CausesOfExitCodes) {
  const struct {
    int code;
    v1::Cause cause;
  } cases[] = {{64, v1::USER_ERROR}, {65, v1::PREFLIGHT_FAILED}, {70, v1::NETWORK},
               {71, v1::HARDWARE},   {72, v1::HARDWARE},         {73, v1::STORAGE},
               {74, v1::NUMERIC},    {75, v1::NETWORK},          {93, v1::USER_ERROR},
               {1, v1::INTERNAL}};
  for (const auto& one : cases)
    EXPECT_EQ(JudgeRank(Ended(one.code, 0)).cause, one.cause) << one.code;
  EXPECT_TRUE(JudgeRank(Ended(75, 0)).secondary);
  EXPECT_FALSE(JudgeRank(Ended(74, 0)).secondary);
  EXPECT_FALSE(IsFailure(Ended(0, 0)));
}

}  // namespace
}  // namespace mt::daemon
