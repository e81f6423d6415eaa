// Links in isolation: which edges a rank has, receiving ahead, how far a sender may run ahead, and
// how waits end.
#include "worker/parallel/pipeline/link.h"

#include <algorithm>
#include <array>
#include <memory>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/parallel/pipeline/fake_work.h"
#include "tests/worker/parallel/pipeline/inline_device.h"
#include "tests/worker/parallel/pipeline/stages.h"
#include "worker/comm/threads/hub.h"
#include "worker/parallel/pipeline/edges.h"
#include "worker/parallel/pipeline/host_link.h"
#include "worker/parallel/schedule/generate.h"

namespace mt::parallel {
namespace {

using layout::Mesh;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> Names(const Mesh& mesh, int rank, int chunks) {
  std::vector<std::string> names;
  for (const Edge& edge : EdgesOf(mesh, rank, chunks)) {
    names.push_back((edge.outgoing ? "out " : "in ") + edge.spec.name);
  }
  return names;
}

TEST(EdgesOf, OneChunkPerStageMakesALine) {
  const Mesh mesh = Mesh::Create({.pp = 4}).value();
  EXPECT_THAT(Names(mesh, 0, 1), ElementsAre("out pp-act/0-1", "in pp-grad/1-0"));
  EXPECT_THAT(Names(mesh, 2, 1),
              ElementsAre("in pp-act/1-2", "out pp-act/2-3", "out pp-grad/2-1", "in pp-grad/3-2"));
  EXPECT_THAT(Names(mesh, 3, 1), ElementsAre("in pp-act/2-3", "out pp-grad/3-2"));
}

TEST(EdgesOf, SeveralChunksMakeARing) {
  const Mesh mesh = Mesh::Create({.pp = 4}).value();
  EXPECT_THAT(Names(mesh, 0, 2),
              ElementsAre("out pp-act/0-1", "in pp-act/3-0", "out pp-grad/0-3", "in pp-grad/1-0"));
  const Mesh two = Mesh::Create({.pp = 2}).value();
  EXPECT_THAT(Names(two, 0, 2),
              ElementsAre("out pp-act/0-1", "in pp-act/1-0", "out pp-grad/0-1", "in pp-grad/1-0"));
}

TEST(EdgesOf, StayWithinAColumnOfTheMesh) {
  const Mesh mesh = Mesh::Create({.tp = 2, .dp = 2, .pp = 2}).value();
  EXPECT_THAT(Names(mesh, 3, 1), ElementsAre("out pp-act/3-7", "in pp-grad/7-3"));
  EXPECT_TRUE(EdgesOf(Mesh::Create({.tp = 2, .dp = 2}).value(), 1, 1).empty());
  const comm::GroupSpec spec = EdgesOf(mesh, 7, 1)[0].spec;
  EXPECT_THAT(spec.members, ElementsAre(3, 7));
  EXPECT_EQ(spec.my_index, kReceiverIndex);
}

// A factory blocks until the other member comes; any rank's order must be a part of one order.
TEST(EdgesOf, AllRanksCreateTheirGroupsInOneOrder) {
  const Mesh mesh = Mesh::Create({.tp = 2, .dp = 1, .pp = 5}).value();
  std::vector<std::vector<std::string>> left;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    left.emplace_back();
    for (const Edge& edge : EdgesOf(mesh, rank, 3)) left.back().push_back(edge.spec.name);
    std::reverse(left.back().begin(), left.back().end());
  }
  // Ranks meet as long as two have the same group before them.
  for (bool met = true; met;) {
    met = false;
    for (auto& one : left) {
      for (auto& other : left) {
        if (&one == &other || one.empty() || other.empty() || one.back() != other.back()) continue;
        one.pop_back();
        other.pop_back();
        met = true;
      }
    }
  }
  for (const auto& names : left) EXPECT_TRUE(names.empty());
}

// Of nobody: notes when it ends.
class NotingGroup final : public comm::ProcessGroup {
 public:
  NotingGroup(comm::GroupSpec spec, std::vector<std::string>* ended)
      : ProcessGroup(std::move(spec), {}), ended_(ended) {}
  ~NotingGroup() override { ended_->push_back(name()); }

 private:
  Status DoCall(kernels::Stream& /*stream*/, const Call& /*call*/,
                base::MonotonicTime /*deadline*/) override {
    return OkStatus();
  }
  void OnBroken() override {}

  std::vector<std::string>* const ended_;
};

class NotingFactory final : public comm::GroupFactory {
 public:
  StatusOr<std::unique_ptr<comm::ProcessGroup>> Create(comm::GroupSpec spec) override {
    return std::make_unique<NotingGroup>(std::move(spec), &ended);
  }
  std::vector<std::string> ended;
};

TEST(StageLinks, EndInTheOrderInWhichAllRanksMadeThem) {
  const Mesh mesh = Mesh::Create({.pp = 3}).value();
  InlineDevice device;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    NotingFactory factory;
    StageLinks links =
        CreateLinks(&factory, mesh, rank, /*chunks=*/2, {.device = &device, .overlap = false})
            .value();
    EXPECT_THAT(factory.ended, testing::IsEmpty());
    links.Free();
    std::vector<std::string> made;
    for (const Edge& edge : EdgesOf(mesh, rank, 2)) made.push_back(edge.spec.name);
    EXPECT_EQ(factory.ended, made);
  }
}

// A sender and a receiver of one edge.
class Pair {
 public:
  explicit Pair(bool overlap, comm::CommConfig config = {}) : hub_(config) {
    std::unique_ptr<comm::ProcessGroup> from;
    std::thread other([&] {
      from = hub_.Create({.name = "link", .members = {0, 1}, .my_index = 0}).value();
    });
    auto to = hub_.Create({.name = "link", .members = {0, 1}, .my_index = 1}).value();
    other.join();
    sender = std::make_unique<HostSender>(std::move(from), &device_, overlap);
    receiver = std::make_unique<HostReceiver>(std::move(to), &device_, overlap);
  }

 private:
  comm::ThreadsHub hub_;
  InlineDevice device_;

 public:
  const std::unique_ptr<kernels::Stream> stream_holder =
      device_.CreateStream(kernels::StreamPriority::kLow);
  kernels::Stream& stream = *stream_holder;
  std::unique_ptr<Sender> sender;
  std::unique_ptr<Receiver> receiver;
};

TEST(Link, ReceivesAheadIntoFreeSlotsOnly) {
  Pair pair(/*overlap=*/true);
  std::vector<int64_t> out{1, 2};
  std::vector<int64_t> slot0(2), slot1(2);
  ASSERT_TRUE(pair.sender->Begin(pair.stream, {.lanes = 1}).ok());
  ASSERT_TRUE(pair.receiver
                  ->Begin(pair.stream,
                          {{0, 0, View(slot0)}, {0, 1, View(slot1)}, {0, 0, View(slot0)}},
                          {.lanes = 1})
                  .ok());
  for (int64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(pair.sender->WaitSent(pair.stream, 0, 0).ok());
    out = {10 * i, 10 * i + 1};
    ASSERT_TRUE(pair.sender->Send(pair.stream, {0, 0, View(out)}).ok());
  }
  ASSERT_TRUE(pair.sender->WaitAllSent(pair.stream).ok());
  ASSERT_TRUE(pair.receiver->WaitReady(pair.stream, 0, 0).ok());
  ASSERT_TRUE(pair.receiver->WaitReady(pair.stream, 0, 1).ok());
  EXPECT_THAT(slot1, ElementsAre(10, 11));
  // The third parcel is on its way, but slot 0 is in use.
  EXPECT_THAT(slot0, ElementsAre(0, 1));
  EXPECT_EQ(pair.receiver->Stats().of(comm::CommOp::kRecv).num_calls, 2);
  pair.receiver->Release(pair.stream, 0, 0);
  ASSERT_TRUE(pair.receiver->WaitReady(pair.stream, 0, 0).ok());
  EXPECT_THAT(slot0, ElementsAre(20, 21));
}

TEST(Link, AbortWakesEitherEndAndReachesTheOther) {
  for (const bool overlap : {false, true}) {
    Pair pair(overlap);
    std::vector<int64_t> slot(2);
    ASSERT_TRUE(pair.receiver->Begin(pair.stream, {{0, 0, View(slot)}}, {.lanes = 1}).ok());
    std::thread waiting([&] {
      const Status status = pair.receiver->WaitReady(pair.stream, 0, 0);
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    });
    pair.sender->Abort("told to leave");
    waiting.join();
    EXPECT_EQ(pair.sender->status().code(), absl::StatusCode::kAborted);
    EXPECT_THAT(base::Message(pair.sender->status()), HasSubstr("told to leave"));
    EXPECT_EQ(pair.sender->Send(pair.stream, {0, 0, View(slot)}), pair.sender->status());
    EXPECT_EQ(pair.receiver->WaitReady(pair.stream, 0, 0), pair.receiver->status());
  }
}

TEST(Link, DestructionEndsAReceiveThatWaits) {
  Pair pair(/*overlap=*/true);
  std::vector<int64_t> slot(2);
  ASSERT_TRUE(pair.receiver->Begin(pair.stream, {{0, 0, View(slot)}}, {.lanes = 1}).ok());
  pair.receiver.reset();
  // The other end finds out when it next needs the link.
  for (int i = 0; i < 20; ++i) {
    if (!pair.sender->Send(pair.stream, {0, 0, View(slot)}).ok()) break;
    if (!pair.sender->WaitAllSent(pair.stream).ok()) break;
  }
  EXPECT_EQ(pair.sender->status().code(), absl::StatusCode::kUnavailable);
}

TEST(Link, ADeadlineThatPassesEndsTheWait) {
  Pair pair(/*overlap=*/true, {.op_timeout = std::chrono::milliseconds(20)});
  std::vector<int64_t> slot(2);
  ASSERT_TRUE(pair.receiver->Begin(pair.stream, {{0, 0, View(slot)}}, {.lanes = 1}).ok());
  const Status status = pair.receiver->WaitReady(pair.stream, 0, 0);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
}

// How many parcels an edge can hold that were sent and not received, where receiving is done by the
// thread that computes: by what each action knows of the others' progress.
class Lead {
 public:
  explicit Lead(const Schedule& schedule) : schedule_(schedule) {
    const auto stages = static_cast<size_t>(schedule.stages);
    next_.resize(stages);
    knows_.assign(stages, std::vector<size_t>(stages, 0));
    for (auto& edges : sent_) edges.resize(stages);
    for (auto& edges : taken_) edges.resize(stages);
    for (auto& edges : largest_) edges.resize(stages);
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < schedule.stages; ++stage) {
        while (Step(stage)) moved = true;
      }
    }
  }

  bool finished() const {
    for (size_t s = 0; s < next_.size(); ++s) {
      if (next_[s] < schedule_.actions[s].size()) return false;
    }
    return true;
  }
  // On the edge that leaves this stage.
  int64_t Largest(int sender, ActionKind kind) const {
    return largest_[static_cast<size_t>(kind)][static_cast<size_t>(sender)];
  }

 private:
  int PeerOf(int stage, ActionKind kind, bool receiver) const {
    return (kind == ActionKind::kForward) == receiver ? schedule_.next_stage(stage)
                                                      : schedule_.previous_stage(stage);
  }

  bool Step(int stage) {
    const auto s = static_cast<size_t>(stage);
    if (next_[s] == schedule_.actions[s].size()) return false;
    const Action& action = schedule_.actions[s][next_[s]];
    const auto kind = static_cast<size_t>(action.kind);
    if (action.receives) {
      const auto sender = static_cast<size_t>(PeerOf(stage, action.kind, /*receiver=*/false));
      size_t& taken = taken_[kind][sender];
      if (taken == sent_[kind][sender].size()) return false;
      const std::vector<size_t>& known = sent_[kind][sender][taken++];
      for (size_t i = 0; i < known.size(); ++i) knows_[s][i] = std::max(knows_[s][i], known[i]);
    }
    knows_[s][s] = ++next_[s];
    if (!action.sends) return true;
    const auto receiver = static_cast<size_t>(PeerOf(stage, action.kind, /*receiver=*/true));
    sent_[kind][s].push_back(knows_[s]);
    const auto& list = schedule_.actions[receiver];
    const int64_t received = std::count_if(
        list.begin(), list.begin() + static_cast<int64_t>(knows_[s][receiver]),
        [&](const Action& theirs) { return theirs.kind == action.kind && theirs.receives; });
    largest_[kind][s] =
        std::max(largest_[kind][s], static_cast<int64_t>(sent_[kind][s].size()) - received);
    return true;
  }

  const Schedule& schedule_;
  std::vector<size_t> next_;                // [stage] action
  std::vector<std::vector<size_t>> knows_;  // [stage][other]: actions of `other` known to be done
  // [kind][sender]
  std::array<std::vector<std::vector<std::vector<size_t>>>, 2> sent_;  // what each parcel knows
  std::array<std::vector<size_t>, 2> taken_;
  std::array<std::vector<int64_t>, 2> largest_;
};

void ExpectLanesSuffice(const Schedule& schedule) {
  const Lead lead(schedule);
  ASSERT_TRUE(lead.finished());
  for (int stage = 0; stage < schedule.stages; ++stage) {
    for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward}) {
      const int64_t room =
          int64_t{LanesOf(schedule, stage, kind)} * comm::ProcessGroup::kSendWindow;
      // One stage after the other may run ahead without end: it waits, and nobody waits for it.
      if (schedule.forward_only && schedule.chunks == 1) continue;
      EXPECT_LE(lead.Largest(stage, kind), room)
          << Name(schedule.kind) << ", stage " << stage << " of " << schedule.stages << ", "
          << schedule.microbatches << " microbatches, " << schedule.chunks << " chunks";
    }
  }
}

TEST(LanesOf, SendsThatBlockNeverWait) {
  for (const int stages : {2, 3, 4, 8, 20}) {
    for (const int microbatches : {1, 7, 24, 60}) {
      for (const ScheduleKind kind : {ScheduleKind::kGPipe, ScheduleKind::kOneFOneB}) {
        ExpectLanesSuffice(
            GenerateSchedule({.kind = kind, .stages = stages, .microbatches = microbatches})
                .value());
      }
    }
    for (const int chunks : {1, 2, 5}) {
      for (const int group : {stages, stages + 3, 40}) {
        const Schedule training = GenerateSchedule({.kind = ScheduleKind::kInterleaved,
                                                    .stages = stages,
                                                    .microbatches = 2 * group,
                                                    .chunks = chunks,
                                                    .group = group})
                                      .value();
        ExpectLanesSuffice(training);
        for (const int microbatches : {1, 16, 61}) {
          ExpectLanesSuffice(ForwardOnly(training, microbatches));
        }
      }
    }
  }
}

// 40 microbatches go through a chunk before the next chunk's turn: the ring's outputs pile up.
TEST(LanesOf, AreNeededByLargeGroups) {
  const Schedule training = GenerateSchedule({.kind = ScheduleKind::kInterleaved,
                                              .stages = 2,
                                              .microbatches = 40,
                                              .chunks = 2,
                                              .group = 40})
                                .value();
  EXPECT_GT(Lead(training).Largest(1, ActionKind::kForward), comm::ProcessGroup::kSendWindow);
  EXPECT_GT(LanesOf(training, 1, ActionKind::kForward), 1);
  comm::ThreadsHub hub({.op_timeout = std::chrono::seconds(30)});
  for (const bool overlap : {false, true}) {
    const std::vector<Status> results =
        RunStages({.training = &training,
                   .passes = {&training, &training},
                   .overlap = overlap,
                   .max_delay_us = 0,
                   .is_empty = {},
                   .inject = {},
                   .after_pass = {},
                   .factory = [&](int) -> comm::GroupFactory& { return hub; }});
    for (const Status& result : results) EXPECT_TRUE(result.ok()) << result;
  }
}

}  // namespace
}  // namespace mt::parallel
