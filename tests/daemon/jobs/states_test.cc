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
  for (const auto to : {v1::SUCCEEDED, v1::FAILED, v1::CANCELLED, v1::QUEUED})
    all.push_back({v1::STOPPING, to});
  return all;
}

using enum JobEvent;

// Written out by hand from the design's table, not from the code.
struct Row {
  const char* from;
  JobEvent event;
  const char* to;
  const char* actions;  // in order; none where the event is reserved
};
constexpr Row kExpected[] = {
    {"QUEUED", kPlaced, "ADMITTED", "clear Waiting, close epoch, await acceptance"},
    {"QUEUED", kHold, "PAUSED_RELEASED", "clear Waiting, settle operations"},
    {"QUEUED", kRelease, "PAUSED_RELEASED", "clear Waiting, settle operations"},
    {"QUEUED", kResume, "QUEUED", "await slots"},
    {"QUEUED", kCancel, "CANCELLED", "finish"},
    {"QUEUED", kKill, "CANCELLED", "finish"},
    {"QUEUED", kDeadline, "FAILED", "finish, record verdict"},
    {"QUEUED", kFault, "FAILED", "finish, record verdict, kill ranks"},
    {"ADMITTED", kAllAccepted, "STARTING", "forget failures"},
    {"ADMITTED", kPreflightDue, "PREFLIGHT", ""},
    {"ADMITTED", kPlacementFailed, "QUEUED",
     "free slots, close epoch, forget ranks, retry later, fail saves"},
    {"ADMITTED", kBaseMissing, "STOPPING(QUEUED)", "kill ranks"},
    {"ADMITTED", kHold, "ADMITTED", "hold at start, check ranks"},
    {"ADMITTED", kResume, "ADMITTED", "run at start, check ranks"},
    {"ADMITTED", kRelease, "RELEASING", "kill unless stopping"},
    {"ADMITTED", kPreempt, "RELEASING", ""},
    {"ADMITTED", kCancel, "STOPPING(CANCELLED)", "kill unless stopping"},
    {"ADMITTED", kKill, "STOPPING(CANCELLED)", "kill ranks"},
    {"ADMITTED", kDeadline, "STOPPING(FAILED)",
     "record verdict, aim at stop, kill unless stopping"},
    {"ADMITTED", kFault, "STOPPING(FAILED)", "record verdict, kill ranks"},
    {"ADMITTED", kRecover, "RECOVERING", "kill ranks"},
    {"PREFLIGHT", kPlacementFailed, "QUEUED",
     "free slots, close epoch, forget ranks, retry later, fail saves"},
    {"PREFLIGHT", kPreflightPassed, "STARTING", ""},
    {"PREFLIGHT", kPreflightExhausted, "STOPPING(FAILED)", ""},
    {"PREFLIGHT", kHold, "PREFLIGHT", "hold at start, check ranks"},
    {"PREFLIGHT", kResume, "PREFLIGHT", "run at start, check ranks"},
    {"PREFLIGHT", kRelease, "RELEASING", "kill unless stopping"},
    {"PREFLIGHT", kPreempt, "RELEASING", ""},
    {"PREFLIGHT", kCancel, "STOPPING(CANCELLED)", "kill unless stopping"},
    {"PREFLIGHT", kKill, "STOPPING(CANCELLED)", "kill ranks"},
    {"PREFLIGHT", kDeadline, "STOPPING(FAILED)",
     "record verdict, aim at stop, kill unless stopping"},
    {"PREFLIGHT", kFault, "STOPPING(FAILED)", "record verdict, kill ranks"},
    {"STARTING", kAllReady, "RUNNING", "settle base, settle operations"},
    {"STARTING", kAllHeld, "PAUSED_HELD", "settle base, settle operations"},
    {"STARTING", kBaseMissing, "STOPPING(QUEUED)", "kill ranks"},
    {"STARTING", kHold, "STARTING", "hold at start, check ranks"},
    {"STARTING", kResume, "STARTING", "run at start, check ranks"},
    {"STARTING", kRelease, "RELEASING", "kill unless stopping"},
    {"STARTING", kPreempt, "RELEASING", ""},
    {"STARTING", kRecover, "RECOVERING", "kill ranks"},
    {"STARTING", kCancel, "STOPPING(CANCELLED)", "kill unless stopping"},
    {"STARTING", kKill, "STOPPING(CANCELLED)", "kill ranks"},
    {"STARTING", kDeadline, "STOPPING(FAILED)",
     "record verdict, aim at stop, kill unless stopping"},
    {"STARTING", kFault, "STOPPING(FAILED)", "record verdict, kill ranks"},
    {"RUNNING", kBaseMissing, "STOPPING(QUEUED)", "kill ranks, fail operations"},
    {"RUNNING", kHold, "PAUSING", "command hold"},
    {"RUNNING", kRelease, "RELEASING", "command stop"},
    {"RUNNING", kPreempt, "RELEASING", ""},
    {"RUNNING", kRecover, "RECOVERING", "kill ranks"},
    {"RUNNING", kTrainingEnded, "STOPPING(SUCCEEDED)", "await exit"},
    {"RUNNING", kCancel, "STOPPING(CANCELLED)", "command stop"},
    {"RUNNING", kKill, "STOPPING(CANCELLED)", "kill ranks"},
    {"RUNNING", kDeadline, "STOPPING(FAILED)", "record verdict, aim at stop, command stop"},
    {"RUNNING", kFault, "STOPPING(FAILED)", "record verdict, kill ranks"},
    {"PAUSING", kAllHeld, "PAUSED_HELD", "settle operations"},
    {"PAUSING", kResume, "RUNNING", "command resume, settle operations"},
    {"PAUSING", kRelease, "RELEASING", "command stop"},
    {"PAUSING", kPreempt, "RELEASING", ""},
    {"PAUSING", kRecover, "RECOVERING", "kill ranks"},
    {"PAUSING", kTrainingEnded, "STOPPING(SUCCEEDED)", "await exit"},
    {"PAUSING", kCancel, "STOPPING(CANCELLED)", "command stop"},
    {"PAUSING", kKill, "STOPPING(CANCELLED)", "kill ranks"},
    {"PAUSING", kDeadline, "STOPPING(FAILED)", "record verdict, aim at stop, command stop"},
    {"PAUSING", kFault, "STOPPING(FAILED)", "record verdict, kill ranks"},
    {"PAUSED_HELD", kResume, "RUNNING", "command resume, settle operations"},
    {"PAUSED_HELD", kRelease, "RELEASING", "command stop"},
    {"PAUSED_HELD", kPreempt, "RELEASING", ""},
    {"PAUSED_HELD", kRecover, "RECOVERING", "kill ranks"},
    {"PAUSED_HELD", kCancel, "STOPPING(CANCELLED)", "command stop"},
    {"PAUSED_HELD", kKill, "STOPPING(CANCELLED)", "kill ranks"},
    {"PAUSED_HELD", kDeadline, "STOPPING(FAILED)", "record verdict, aim at stop, command stop"},
    {"PAUSED_HELD", kFault, "STOPPING(FAILED)", "record verdict, kill ranks"},
    {"RELEASING", kReleased, "PAUSED_RELEASED", "close epoch, settle operations, follow resume"},
    {"RELEASING", kSaveFailed, "PAUSED_HELD", "forget stop, follow resume"},
    {"RELEASING", kRelease, "RELEASING", "amend stop"},
    {"RELEASING", kResume, "RELEASING", "await release"},
    {"RELEASING", kRequeued, "QUEUED", ""},
    {"RELEASING", kCancel, "STOPPING(CANCELLED)", "kill unless stopping"},
    {"RELEASING", kKill, "STOPPING(CANCELLED)", "kill ranks"},
    {"RELEASING", kDeadline, "STOPPING(FAILED)",
     "record verdict, aim at stop, kill unless stopping"},
    {"PAUSED_RELEASED", kResume, "QUEUED", "await slots"},
    {"PAUSED_RELEASED", kCancel, "CANCELLED", "finish"},
    {"PAUSED_RELEASED", kKill, "CANCELLED", "finish"},
    {"PAUSED_RELEASED", kDeadline, "FAILED", "finish, record verdict"},
    {"RECOVERING", kFenced, "ADMITTED", "clear Waiting, close epoch, await acceptance"},
    {"RECOVERING", kFencedNewNode, "PREFLIGHT", ""},
    {"RECOVERING", kNoRoom, "QUEUED", "forget ranks, fail saves"},
    {"RECOVERING", kNotRetried, "STOPPING(FAILED)", "record verdict, kill ranks"},
    {"RECOVERING", kBaseMissing, "STOPPING(QUEUED)", "forget verdict"},
    {"RECOVERING", kHold, "RECOVERING", "await the next epoch"},
    {"RECOVERING", kResume, "RECOVERING", "await the next epoch"},
    {"RECOVERING", kRelease, "RELEASING", "kill unless stopping"},
    {"RECOVERING", kPreempt, "RELEASING", ""},
    {"RECOVERING", kCancel, "STOPPING(CANCELLED)", "kill unless stopping"},
    {"RECOVERING", kKill, "STOPPING(CANCELLED)", "kill ranks"},
    {"RECOVERING", kDeadline, "STOPPING(FAILED)",
     "record verdict, aim at stop, kill unless stopping"},
    {"STOPPING(SUCCEEDED)", kKill, "STOPPING(SUCCEEDED)", "kill ranks"},
    {"STOPPING(SUCCEEDED)", kRanksGone, "SUCCEEDED", "finish"},
    {"STOPPING(FAILED)", kKill, "STOPPING(FAILED)", "kill ranks"},
    {"STOPPING(FAILED)", kRanksGone, "FAILED", "finish"},
    {"STOPPING(FAILED)", kBaseMissing, "STOPPING(QUEUED)", "forget verdict"},
    {"STOPPING(QUEUED)", kRanksGone, "QUEUED", "close epoch, forget ranks, await base, fail saves"},
    {"STOPPING(QUEUED)", kResume, "STOPPING(QUEUED)", "await slots"},
    {"STOPPING(QUEUED)", kRelease, "RELEASING", "kill unless stopping"},
    {"STOPPING(QUEUED)", kCancel, "STOPPING(CANCELLED)", "kill unless stopping"},
    {"STOPPING(QUEUED)", kKill, "STOPPING(CANCELLED)", "kill ranks"},
    {"STOPPING(QUEUED)", kDeadline, "STOPPING(FAILED)",
     "record verdict, aim at stop, kill unless stopping"},
    {"STOPPING(CANCELLED)", kKill, "STOPPING(CANCELLED)", "kill ranks"},
    {"STOPPING(CANCELLED)", kRanksGone, "CANCELLED", "finish"},
    {"QUEUED", kAdopted, "STARTING", "clear Waiting, close epoch, free older epochs, follow goal"},
    {"ADMITTED", kAdopted, "STARTING",
     "clear Waiting, close epoch, free older epochs, follow goal"},
    {"ADMITTED", kPhantom, "PAUSED_RELEASED", "close epoch, forget ranks, fail operations"},
    {"PREFLIGHT", kAdopted, "STARTING",
     "clear Waiting, close epoch, free older epochs, follow goal"},
    {"PREFLIGHT", kPhantom, "PAUSED_RELEASED", "close epoch, forget ranks, fail operations"},
    {"STARTING", kAdopted, "STARTING",
     "clear Waiting, close epoch, free older epochs, follow goal"},
    {"STARTING", kPhantom, "PAUSED_RELEASED", "close epoch, forget ranks, fail operations"},
    {"RUNNING", kAdopted, "STARTING", "clear Waiting, close epoch, free older epochs, follow goal"},
    {"RUNNING", kPhantom, "PAUSED_RELEASED", "close epoch, forget ranks, fail operations"},
    {"PAUSING", kAdopted, "STARTING", "clear Waiting, close epoch, free older epochs, follow goal"},
    {"PAUSING", kPhantom, "PAUSED_RELEASED", "close epoch, forget ranks, fail operations"},
    {"PAUSED_HELD", kAdopted, "STARTING",
     "clear Waiting, close epoch, free older epochs, follow goal"},
    {"PAUSED_HELD", kPhantom, "PAUSED_RELEASED", "close epoch, forget ranks, fail operations"},
    {"RELEASING", kAdopted, "STARTING",
     "clear Waiting, close epoch, free older epochs, follow goal"},
    {"RELEASING", kPhantom, "PAUSED_RELEASED", "close epoch, forget ranks, fail operations"},
    {"PAUSED_RELEASED", kAdopted, "STARTING",
     "clear Waiting, close epoch, free older epochs, follow goal"},
    {"RECOVERING", kAdopted, "STARTING",
     "clear Waiting, close epoch, free older epochs, follow goal"},
    {"RECOVERING", kPhantom, "PAUSED_RELEASED", "close epoch, forget ranks, fail operations"},
    {"STOPPING(SUCCEEDED)", kAdopted, "STOPPING(SUCCEEDED)", "free older epochs, stop again"},
    {"STOPPING(QUEUED)", kAdopted, "STARTING",
     "clear Waiting, close epoch, free older epochs, follow goal"},
    {"STOPPING(QUEUED)", kPhantom, "QUEUED", "close epoch, forget ranks, await base, fail saves"},
    {"STOPPING(SUCCEEDED)", kPhantom, "SUCCEEDED", "finish"},
    {"STOPPING(FAILED)", kAdopted, "STOPPING(FAILED)", "free older epochs, stop again"},
    {"STOPPING(FAILED)", kPhantom, "FAILED", "finish"},
    {"STOPPING(CANCELLED)", kAdopted, "STOPPING(CANCELLED)", "free older epochs, stop again"},
    {"STOPPING(CANCELLED)", kPhantom, "CANCELLED", "finish"},
};

const Row* Expected(const std::string& from, JobEvent event) {
  for (const Row& row : kExpected) {
    if (row.from == from && row.event == event) return &row;
  }
  return nullptr;
}

std::string ActionsText(const JobActions& actions) {
  std::string text;
  for (const JobAction action : actions)
    text += (text.empty() ? "" : ", ") + std::string(ActionName(action));
  return text;
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
      const Row* expected = Expected(name, event);
      EXPECT_EQ(JobStateMachine::Allows(from, event), expected != nullptr);
      if (expected != nullptr) {
        ASSERT_TRUE(next.ok()) << name << " " << EventName(event);
        EXPECT_EQ(PositionName(next->to), expected->to);
        EXPECT_EQ(ActionsText(next->actions), expected->actions) << name << " " << EventName(event);
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
  EXPECT_EQ(JobTable().size(), std::size(kExpected));
  EXPECT_EQ(refused, 17 * kNumJobEvents - static_cast<int64_t>(std::size(kExpected)));
}

// What is found on the nodes may be taken over from wherever the job is, and only there.
TEST(JobStates, EveryStateThatIsNotFinalAdopts) {
  for (const JobPosition from : AllPositions()) {
    EXPECT_EQ(JobStateMachine::Allows(from, kAdopted), !IsFinal(from.state)) << PositionName(from);
    // What has, or frees, slots may turn out to have none.
    const bool has_slots =
        IsActive(from.state) || from.state == v1::RELEASING || from.state == v1::STOPPING;
    EXPECT_EQ(JobStateMachine::Allows(from, kPhantom), has_slots) << PositionName(from);
  }
}

TEST(JobStates, FinalStatesHaveNoWayOut) {
  for (const JobTransition& row : JobTable()) EXPECT_FALSE(IsFinal(row.from.state));
}

TEST(JobStates, EveryStateIsReachedFromTheQueue) {
  std::set<std::string> reached = {"QUEUED"};
  for (size_t before = 0; before != reached.size();) {
    before = reached.size();
    for (const JobTransition& row : JobTable()) {
      if (reached.contains(PositionName(row.from))) reached.insert(PositionName(row.to));
    }
  }
  EXPECT_EQ(reached.size(), AllPositions().size());
}

// What is reserved is not met today, and nothing else is out of reach.
TEST(JobStates, OnlyReservedEventsLeadToPreflight) {
  std::set<std::string> reached = {"QUEUED"};
  std::set<JobEvent> raised;
  for (size_t before = 0; before != reached.size();) {
    before = reached.size();
    for (const JobTransition& row : JobTable()) {
      if (IsReserved(row.event) || !reached.contains(PositionName(row.from))) continue;
      reached.insert(PositionName(row.to));
      raised.insert(row.event);
    }
  }
  std::set<std::string> missing;
  for (const JobPosition position : AllPositions()) {
    if (!reached.contains(PositionName(position))) missing.insert(PositionName(position));
  }
  EXPECT_EQ(missing, (std::set<std::string>{"PREFLIGHT"}));
  for (int i = 0; i < kNumJobEvents; ++i) {
    const auto event = static_cast<JobEvent>(i);
    EXPECT_NE(raised.contains(event), IsReserved(event)) << EventName(event);
  }
}

TEST(JobStates, EveryReservedEventNamesItsFeatureAndHasNoActions) {
  for (const ReservedEvent& reserved : ReservedEvents()) EXPECT_FALSE(reserved.feature.empty());
  EXPECT_EQ(ReservedEvents().size(), 6u);
  for (const JobTransition& row : JobTable())
    EXPECT_EQ(row.actions.empty(), IsReserved(row.event)) << PositionName(row.from);
}

TEST(JobStates, AllowedVerbs) {
  const auto verbs = [](v1::JobState state, v1::Goal goal) {
    return AllowedVerbs({state, v1::JOB_STATE_UNSPECIFIED}, goal);
  };
  EXPECT_EQ(verbs(v1::QUEUED, v1::GOAL_RUN), "pause, update, cancel, kill");
  EXPECT_EQ(verbs(v1::STARTING, v1::GOAL_RUN), "pause, update, cancel, kill");
  EXPECT_EQ(verbs(v1::STARTING, v1::GOAL_HOLD), "pause --release, resume, update, cancel, kill");
  EXPECT_EQ(verbs(v1::RUNNING, v1::GOAL_RUN), "pause, checkpoint, profile, update, cancel, kill");
  EXPECT_EQ(verbs(v1::PAUSED_HELD, v1::GOAL_HOLD),
            "pause --release, resume, checkpoint, update, cancel, kill");
  EXPECT_EQ(verbs(v1::RELEASING, v1::GOAL_RELEASE), "resume, update, cancel, kill");
  EXPECT_EQ(verbs(v1::RELEASING, v1::GOAL_RUN), "pause --release, update, cancel, kill");
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
      {v1::DIRTY, v1::RELEASED},       {v1::ACCEPTED, v1::ORPHANED},
      {v1::ACTIVE, v1::ORPHANED},      {v1::UNREACHABLE, v1::ORPHANED},
      {v1::ORPHANED, v1::ACTIVE},      {v1::ORPHANED, v1::FREEING},
      {v1::ORPHANED, v1::RELEASED}};
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

TEST(Verdict, AnExitThatNobodySawIsAFailureWithoutACode) {
  v1::RankReport report = Ended(0, 0);
  report.mutable_status()->set_exit_unknown(true);
  ASSERT_TRUE(IsFailure(report));
  EXPECT_EQ(JudgeRank(report).message,
            "rank 3 on node n1: how it ended is not known (its shim was gone)");
  EXPECT_EQ(JudgeRank(report).cause, v1::INTERNAL);
  EXPECT_FALSE(JudgeRank(report).secondary);
  // Agents of before say FAULTED, and no more.
  report = Ended(0, 0);
  report.mutable_status()->set_state(v1::FAULTED);
  report.mutable_status()->set_message("its mt-shim ended (signal 9)");
  ASSERT_TRUE(IsFailure(report));
  EXPECT_EQ(JudgeRank(report).message,
            "rank 3 on node n1: how it ended is not known: its mt-shim ended (signal 9)");
}

TEST(Verdict, CausesOfExitCodes) {
  const struct {
    int code;
    v1::Cause cause;
  } cases[] = {{64, v1::USER_ERROR}, {65, v1::PREFLIGHT_FAILED}, {70, v1::INTERNAL},
               {71, v1::HARDWARE},   {72, v1::HARDWARE},         {73, v1::STORAGE},
               {74, v1::NUMERIC},    {75, v1::NETWORK},          {76, v1::STORAGE},
               {93, v1::USER_ERROR}, {127, v1::INTERNAL},        {1, v1::INTERNAL}};
  for (const auto& one : cases)
    EXPECT_EQ(JudgeRank(Ended(one.code, 0)).cause, one.cause) << one.code;
  EXPECT_TRUE(JudgeRank(Ended(75, 0)).secondary);
  EXPECT_FALSE(JudgeRank(Ended(74, 0)).secondary);
  EXPECT_FALSE(IsFailure(Ended(0, 0)));
}

}  // namespace
}  // namespace mt::daemon
