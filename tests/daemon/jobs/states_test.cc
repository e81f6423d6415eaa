// The tables of states: every pair of state and event, listed or not.
#include <iterator>
#include <map>
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
  for (int state = v1::QUEUED; state <= v1::JobState_MAX; ++state) {
    if (state != v1::STOPPING)
      all.push_back({static_cast<v1::JobState>(state), v1::JOB_STATE_UNSPECIFIED});
  }
  for (const auto to : {v1::SUCCEEDED, v1::FAILED, v1::CANCELLED})
    all.push_back({v1::STOPPING, to});
  return all;
}

using enum JobEvent;

// Written out by hand from the design's table, not from the code.
struct Row {
  const char* from;
  JobEvent event;
  const char* to;
};
constexpr Row kExpected[] = {
    {"QUEUED", kPlaced, "ADMITTED"},
    {"QUEUED", kHold, "PAUSED_RELEASED"},
    {"QUEUED", kRelease, "PAUSED_RELEASED"},
    {"QUEUED", kResume, "QUEUED"},
    {"QUEUED", kCancel, "CANCELLED"},
    {"QUEUED", kKill, "CANCELLED"},
    {"QUEUED", kDeadline, "FAILED"},
    {"QUEUED", kFault, "FAILED"},
    {"ADMITTED", kAllAccepted, "STARTING"},
    {"ADMITTED", kPreflightDue, "PREFLIGHT"},
    {"ADMITTED", kPlacementFailed, "QUEUED"},
    {"ADMITTED", kHold, "ADMITTED"},
    {"ADMITTED", kResume, "ADMITTED"},
    {"ADMITTED", kRelease, "RELEASING"},
    {"ADMITTED", kPreempt, "RELEASING"},
    {"ADMITTED", kCancel, "STOPPING(CANCELLED)"},
    {"ADMITTED", kKill, "STOPPING(CANCELLED)"},
    {"ADMITTED", kDeadline, "STOPPING(FAILED)"},
    {"ADMITTED", kFault, "STOPPING(FAILED)"},
    {"PREFLIGHT", kPlacementFailed, "QUEUED"},
    {"PREFLIGHT", kPreflightPassed, "STARTING"},
    {"PREFLIGHT", kPreflightExhausted, "STOPPING(FAILED)"},
    {"PREFLIGHT", kHold, "PREFLIGHT"},
    {"PREFLIGHT", kResume, "PREFLIGHT"},
    {"PREFLIGHT", kRelease, "RELEASING"},
    {"PREFLIGHT", kPreempt, "RELEASING"},
    {"PREFLIGHT", kCancel, "STOPPING(CANCELLED)"},
    {"PREFLIGHT", kKill, "STOPPING(CANCELLED)"},
    {"PREFLIGHT", kDeadline, "STOPPING(FAILED)"},
    {"PREFLIGHT", kFault, "STOPPING(FAILED)"},
    {"STARTING", kAllReady, "RUNNING"},
    {"STARTING", kAllHeld, "PAUSED_HELD"},
    {"STARTING", kHold, "STARTING"},
    {"STARTING", kResume, "STARTING"},
    {"STARTING", kRelease, "RELEASING"},
    {"STARTING", kPreempt, "RELEASING"},
    {"STARTING", kRecover, "RECOVERING"},
    {"STARTING", kCancel, "STOPPING(CANCELLED)"},
    {"STARTING", kKill, "STOPPING(CANCELLED)"},
    {"STARTING", kDeadline, "STOPPING(FAILED)"},
    {"STARTING", kFault, "STOPPING(FAILED)"},
    {"RUNNING", kHold, "PAUSING"},
    {"RUNNING", kRelease, "RELEASING"},
    {"RUNNING", kPreempt, "RELEASING"},
    {"RUNNING", kRecover, "RECOVERING"},
    {"RUNNING", kTrainingEnded, "STOPPING(SUCCEEDED)"},
    {"RUNNING", kCancel, "STOPPING(CANCELLED)"},
    {"RUNNING", kKill, "STOPPING(CANCELLED)"},
    {"RUNNING", kDeadline, "STOPPING(FAILED)"},
    {"RUNNING", kFault, "STOPPING(FAILED)"},
    {"PAUSING", kAllHeld, "PAUSED_HELD"},
    {"PAUSING", kResume, "RUNNING"},
    {"PAUSING", kRelease, "RELEASING"},
    {"PAUSING", kPreempt, "RELEASING"},
    {"PAUSING", kRecover, "RECOVERING"},
    {"PAUSING", kTrainingEnded, "STOPPING(SUCCEEDED)"},
    {"PAUSING", kCancel, "STOPPING(CANCELLED)"},
    {"PAUSING", kKill, "STOPPING(CANCELLED)"},
    {"PAUSING", kDeadline, "STOPPING(FAILED)"},
    {"PAUSING", kFault, "STOPPING(FAILED)"},
    {"PAUSED_HELD", kResume, "RUNNING"},
    {"PAUSED_HELD", kRelease, "RELEASING"},
    {"PAUSED_HELD", kPreempt, "RELEASING"},
    {"PAUSED_HELD", kRecover, "RECOVERING"},
    {"PAUSED_HELD", kCancel, "STOPPING(CANCELLED)"},
    {"PAUSED_HELD", kKill, "STOPPING(CANCELLED)"},
    {"PAUSED_HELD", kDeadline, "STOPPING(FAILED)"},
    {"PAUSED_HELD", kFault, "STOPPING(FAILED)"},
    {"RELEASING", kReleased, "PAUSED_RELEASED"},
    {"RELEASING", kRequeued, "QUEUED"},
    {"RELEASING", kCancel, "STOPPING(CANCELLED)"},
    {"RELEASING", kKill, "STOPPING(CANCELLED)"},
    {"RELEASING", kDeadline, "STOPPING(FAILED)"},
    {"PAUSED_RELEASED", kResume, "QUEUED"},
    {"PAUSED_RELEASED", kCancel, "CANCELLED"},
    {"PAUSED_RELEASED", kKill, "CANCELLED"},
    {"PAUSED_RELEASED", kDeadline, "FAILED"},
    {"RECOVERING", kFenced, "STARTING"},
    {"RECOVERING", kFencedNewNode, "PREFLIGHT"},
    {"RECOVERING", kNoRoom, "QUEUED"},
    {"RECOVERING", kNotRetried, "STOPPING(FAILED)"},
    {"RECOVERING", kHold, "RECOVERING"},
    {"RECOVERING", kResume, "RECOVERING"},
    {"RECOVERING", kRelease, "RELEASING"},
    {"RECOVERING", kPreempt, "RELEASING"},
    {"RECOVERING", kCancel, "STOPPING(CANCELLED)"},
    {"RECOVERING", kKill, "STOPPING(CANCELLED)"},
    {"RECOVERING", kDeadline, "STOPPING(FAILED)"},
    {"STOPPING(SUCCEEDED)", kRecover, "RECOVERING"},
    {"STOPPING(SUCCEEDED)", kKill, "STOPPING(SUCCEEDED)"},
    {"STOPPING(SUCCEEDED)", kRanksGone, "SUCCEEDED"},
    {"STOPPING(FAILED)", kKill, "STOPPING(FAILED)"},
    {"STOPPING(FAILED)", kRanksGone, "FAILED"},
    {"STOPPING(CANCELLED)", kKill, "STOPPING(CANCELLED)"},
    {"STOPPING(CANCELLED)", kRanksGone, "CANCELLED"},
};

const char* Expected(const std::string& from, JobEvent event) {
  for (const Row& row : kExpected) {
    if (row.from == from && row.event == event) return row.to;
  }
  return nullptr;
}

TEST(JobStates, EveryPair) {
  JobStateMachine machine;
  int64_t refused = 0;
  size_t allowed = 0;
  for (const JobPosition from : AllPositions()) {
    for (int i = 0; i < kNumJobEvents; ++i) {
      const auto event = static_cast<JobEvent>(i);
      const std::string name = PositionName(from);
      const auto next = machine.Next(from, event);
      const char* expected = Expected(name, event);
      EXPECT_EQ(JobStateMachine::Allows(from, event), expected != nullptr);
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
  EXPECT_EQ(allowed, std::size(kExpected));
  EXPECT_EQ(JobTransitions().size(), std::size(kExpected));
  EXPECT_EQ(refused, 16 * kNumJobEvents - static_cast<int64_t>(std::size(kExpected)));
}

TEST(JobStates, FinalStatesHaveNoWayOut) {
  for (const JobTransition& row : JobTransitions()) EXPECT_FALSE(IsFinal(row.from.state));
}

TEST(JobStates, EveryStateIsReachedFromTheQueue) {
  std::set<std::string> reached = {"QUEUED"};
  for (size_t before = 0; before != reached.size();) {
    before = reached.size();
    for (const JobTransition& row : JobTransitions()) {
      if (reached.contains(PositionName(row.from))) reached.insert(PositionName(row.to));
    }
  }
  EXPECT_EQ(reached.size(), AllPositions().size());
}

TEST(JobStates, AllowedVerbs) {
  const auto verbs = [](v1::JobState state, v1::Goal goal) {
    return AllowedVerbs({state, v1::JOB_STATE_UNSPECIFIED}, goal);
  };
  EXPECT_EQ(verbs(v1::QUEUED, v1::GOAL_RUN), "pause, update, cancel, kill");
  EXPECT_EQ(verbs(v1::STARTING, v1::GOAL_RUN), "pause, update, cancel, kill");
  EXPECT_EQ(verbs(v1::STARTING, v1::GOAL_HOLD), "pause --release, resume, update, cancel, kill");
  EXPECT_EQ(verbs(v1::RUNNING, v1::GOAL_RUN), "pause, checkpoint, update, cancel, kill");
  EXPECT_EQ(verbs(v1::PAUSED_HELD, v1::GOAL_HOLD),
            "pause --release, resume, checkpoint, update, cancel, kill");
  EXPECT_EQ(verbs(v1::RELEASING, v1::GOAL_RELEASE), "update, cancel, kill");
  EXPECT_EQ(verbs(v1::PAUSED_RELEASED, v1::GOAL_RELEASE), "resume, update, cancel, kill");
  EXPECT_EQ(AllowedVerbs({v1::STOPPING, v1::FAILED}, v1::GOAL_STOP), "update, kill");
  EXPECT_EQ(verbs(v1::SUCCEEDED, v1::GOAL_STOP), "delete");
}

// Written out by hand: for each state, what a report may lead to.
TEST(RankStates, EveryPair) {
  const std::set<v1::RankState> always = {v1::DONE, v1::FAULTED, v1::UNKNOWN, v1::FENCED};
  const std::map<v1::RankState, std::set<v1::RankState>> onward = {
      {v1::SPAWNED,
       {v1::CONNECTED, v1::COMM_INIT, v1::LOADING, v1::READY, v1::TRAINING, v1::HELD, v1::EXITING}},
      {v1::CONNECTED, {v1::COMM_INIT, v1::LOADING, v1::READY, v1::TRAINING, v1::HELD, v1::EXITING}},
      {v1::COMM_INIT, {v1::LOADING, v1::READY, v1::TRAINING, v1::HELD, v1::EXITING}},
      {v1::LOADING, {v1::READY, v1::TRAINING, v1::HELD, v1::EXITING}},
      {v1::READY, {v1::TRAINING, v1::HELD, v1::EXITING}},
      {v1::TRAINING, {v1::HELD, v1::EXITING}},
      {v1::HELD, {v1::TRAINING, v1::EXITING}},
      {v1::EXITING, {}},
      {v1::UNKNOWN,
       {v1::SPAWNED, v1::CONNECTED, v1::COMM_INIT, v1::LOADING, v1::READY, v1::TRAINING, v1::HELD,
        v1::EXITING}}};
  for (int from = 0; from <= v1::RankState_MAX; ++from) {
    for (int to = 0; to <= v1::RankState_MAX; ++to) {
      const auto a = static_cast<v1::RankState>(from);
      const auto b = static_cast<v1::RankState>(to);
      bool expected = false;
      if (b == v1::RANK_STATE_UNSPECIFIED) {
        expected = false;
      } else if (a == b || a == v1::RANK_STATE_UNSPECIFIED) {
        expected = true;
      } else if (a == v1::FENCED) {
        expected = b == v1::DONE;
      } else if (onward.contains(a)) {
        expected = onward.at(a).contains(b) || always.contains(b);
      }
      EXPECT_EQ(RankMayMove(a, b), expected)
          << v1::RankState_Name(a) << " " << v1::RankState_Name(b);
    }
  }
  EXPECT_FALSE(RankMayMove(static_cast<v1::RankState>(99), v1::READY));
  EXPECT_FALSE(RankMayMove(v1::READY, static_cast<v1::RankState>(-1)));
}

TEST(AllocationStates, EveryPair) {
  const std::set<std::pair<v1::AllocationState, v1::AllocationState>> listed = {
      {v1::RESERVED, v1::ACCEPTED},    {v1::RESERVED, v1::RELEASED},
      {v1::RESERVED, v1::FREEING},     {v1::RESERVED, v1::UNREACHABLE},
      {v1::ACCEPTED, v1::ACTIVE},      {v1::ACCEPTED, v1::FREEING},
      {v1::ACCEPTED, v1::RELEASED},    {v1::ACCEPTED, v1::UNREACHABLE},
      {v1::ACTIVE, v1::FREEING},       {v1::ACTIVE, v1::RELEASED},
      {v1::ACTIVE, v1::UNREACHABLE},   {v1::FREEING, v1::RELEASED},
      {v1::FREEING, v1::UNREACHABLE},  {v1::FREEING, v1::DIRTY},
      {v1::UNREACHABLE, v1::ACCEPTED}, {v1::UNREACHABLE, v1::ACTIVE},
      {v1::UNREACHABLE, v1::FREEING},  {v1::UNREACHABLE, v1::RELEASED},
      {v1::DIRTY, v1::RELEASED}};
  for (int from = 1; from <= v1::AllocationState_MAX; ++from) {
    for (int to = 1; to <= v1::AllocationState_MAX; ++to) {
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
