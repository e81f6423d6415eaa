// Groups over NCCL whose calls are compared: what differs among members ends all of them and is
// named, what agrees is not disturbed, whatever is late.
#include "worker/comm/call_check.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/comm/nccl_harness.h"
#include "tests/worker/comm/queue_device.h"
#include "worker/comm/memory_store.h"
#include "worker/comm/nccl/nccl_factory.h"

namespace mt::comm {
namespace {

using absl::StatusCode;
using kernels::DType;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AnyOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using Data = std::vector<float>;

// Of a test in which nothing may wait for a deadline.
constexpr seconds kNever(600);
constexpr seconds kSoon(10);

CommConfig Within(std::chrono::milliseconds op_timeout) {
  CommConfig config;
  config.op_timeout = op_timeout;
  return config;
}

std::string Say(const Status& status) { return std::string(status.ToString()); }

// What a member does, and how a difference names it.
struct Deed {
  std::string name;
  std::function<Status(NcclRank&, Data&)> call;
};

Deed AddUp(int64_t count, DType dtype = DType::kF32, ReduceOp op = ReduceOp::kSum) {
  return {fmt::format("all_reduce {} of {} {}", op == ReduceOp::kSum ? "sum" : "max", count,
                      kernels::Name(dtype)),
          [=](NcclRank& rank, Data& data) {
            return rank.group.AllReduce(rank.stream, data.data(), data.data(), count, dtype, op);
          }};
}
Deed Spread(int64_t count, int root) {
  return {fmt::format("broadcast of {} f32 from rank {}", count, root),
          [=](NcclRank& rank, Data& data) {
            return rank.group.Broadcast(rank.stream, data.data(), count, DType::kF32, root);
          }};
}
Deed Send(int64_t count, int peer, int edge) {
  return {fmt::format("send of {} f32 to rank {} on edge {}", count, peer, edge),
          [=](NcclRank& rank, Data& data) {
            return rank.group.Send(rank.stream, data.data(), count, DType::kF32, peer, edge);
          }};
}
Deed Receive(int64_t count, int peer, int edge) {
  return {fmt::format("recv of {} f32 from rank {} on edge {}", count, peer, edge),
          [=](NcclRank& rank, Data& data) {
            return rank.group.Recv(rank.stream, data.data(), count, DType::kF32, peer, edge);
          }};
}
Deed Meet() {
  return {"barrier", [](NcclRank& rank, Data&) { return rank.group.Barrier(rank.stream); }};
}
Deed Nothing() {
  return {"", [](NcclRank&, Data&) { return OkStatus(); }};
}

// After a call in which all agree, rank 0 of `size` does one thing and the last rank another.
void Differ(const Deed& first, const Deed& last, int size = 2) {
  const Clock::time_point begin = Clock::now();
  std::vector<Status> ends(static_cast<size_t>(size));
  std::atomic<bool> is_over = false;
  RunNccl(
      "tp/0", size, Within(kNever),
      [&](NcclRank& rank) {
        Data data(4096);
        EXPECT_TRUE(AddUp(7).call(rank, data).ok());
        // Members that compare nothing just now are told by others, as those of a job by its agent:
        // NCCL may hold their hosts.
        std::thread agent([&] {
          while (rank.group.status().ok() && !is_over && Clock::now() < begin + kSoon)
            std::this_thread::sleep_for(milliseconds(1));
          is_over = true;
          rank.group.Abort("a peer has left");
        });
        const bool is_last = rank.group.rank() == size - 1;
        static_cast<void>((is_last ? last : first).call(rank, data));
        static_cast<void>(AddUp(7).call(rank, data));  // where the other did none
        agent.join();
        rank.stream.Synchronize();
        ends[static_cast<size_t>(rank.group.rank())] = rank.group.status();
      },
      /*checked=*/true);
  EXPECT_LT(Clock::now() - begin, kSoon);
  int num_named = 0;
  for (const Status& end : ends) {
    EXPECT_THAT(end.code(), AnyOf(StatusCode::kFailedPrecondition, StatusCode::kUnavailable,
                                  StatusCode::kAborted))
        << end;
    if (end.code() != StatusCode::kFailedPrecondition) continue;
    ++num_named;
    EXPECT_THAT(Say(end), HasSubstr("group tp/0: while members compare their calls"));
    const std::string other = fmt::format("rank {} (world {}) calls", size - 1, 9 + size);
    EXPECT_THAT(Say(end), HasSubstr(other));
    for (const Deed& deed : {first, last}) {
      const std::string named = deed.name.empty() ? "" : deed.name + " (call 2)";
      EXPECT_THAT(Say(end), HasSubstr(named));
    }
  }
  EXPECT_GE(num_named, 1);
}

TEST(CallCheckTest, CollectivesThatDifferAreNamed) {
  Differ(AddUp(100), AddUp(200));
  Differ(AddUp(100), AddUp(100, DType::kI32));
  Differ(AddUp(100), AddUp(100, DType::kF32, ReduceOp::kMax));
  Differ(Spread(100, 0), Spread(100, 1));
  Differ(AddUp(100), Spread(100, 0));
  Differ(AddUp(0), AddUp(1));  // NCCL makes nothing of the first
}

TEST(CallCheckTest, OneOfFourThatGoesAstrayIsNamed) { Differ(AddUp(100), AddUp(200), 4); }

// All calls look alike, and one member has made one more: seen where the others stop.
TEST(CallCheckTest, ACallTooManyIsNamed) {
  Differ(Meet(), Nothing());
  Differ(Nothing(), Spread(100, 0));
}

TEST(CallCheckTest, MessagesThatDifferAreNamed) {
  Differ(Send(100, 1, 0), Receive(200, 0, 0));
  Differ(Send(100, 1, 0), Receive(100, 0, 1));  // NCCL tells no edges apart
  Differ(Receive(100, 1, 3), Send(99, 0, 3));
}

TEST(CallCheckTest, AMessageThatMeetsACollectiveIsNamed) {
  Differ(Send(100, 1, 0), AddUp(100));
  Differ(AddUp(100), Receive(100, 0, 0));
}

TEST(CallCheckTest, CallsThatAgreeAreNotDisturbed) {
  constexpr int kRanks = 3, kRounds = 50;
  RunNccl(
      "dp/0", kRanks, Within(kNever),
      [](NcclRank& rank) {
        const int me = rank.group.rank(), next = (me + 1) % kRanks;
        const int previous = (me + kRanks - 1) % kRanks;
        Data data(4096), other(4096);
        for (int round = 0; round < kRounds; ++round) {
          Status status = AddUp(100 + round).call(rank, data);
          if (status.ok()) status = AddUp(0).call(rank, data);
          if (status.ok()) status = Spread(10, round % kRanks).call(rank, data);
          if (status.ok())
            status = rank.group.AllToAll(rank.stream, data.data(), other.data(), 9, DType::kF32);
          // One after the other round the group, more ahead than a host group lets be unread.
          for (int i = 0; i < 20 && status.ok(); ++i) {
            const auto& send = Send(5, next, i % 4);
            const auto& receive = Receive(5, previous, i % 4);
            status = (me == 0 ? send : receive).call(rank, me == 0 ? data : other);
            if (status.ok()) status = (me == 0 ? receive : send).call(rank, me == 0 ? other : data);
          }
          // Members are late by turns.
          if (round % kRanks == me) std::this_thread::sleep_for(milliseconds(1));
          ASSERT_TRUE(status.ok()) << status;
        }
        EXPECT_TRUE(Meet().call(rank, data).ok());
        EXPECT_TRUE(rank.group.status().ok()) << rank.group.status();
      },
      /*checked=*/true);
}

// As without a check: the deadline says so, whose call is under way.
TEST(CallCheckTest, ACallToWhichAMemberDoesNotComeEndsByItsDeadline) {
  std::promise<void> is_over;
  RunNccl(
      "tp/0", 2, Within(milliseconds(500)),
      [&](NcclRank& rank) {
        Data data(4096);
        if (rank.group.rank() == 1) {
          is_over.get_future().wait();
          return;
        }
        EXPECT_TRUE(AddUp(100).call(rank, data).ok());
        rank.stream.Synchronize();
        EXPECT_EQ(rank.group.status().code(), StatusCode::kDeadlineExceeded);
        EXPECT_THAT(Say(rank.group.status()), HasSubstr("all_reduce sum of 100 f32 (call 1)"));
        is_over.set_value();
      },
      /*checked=*/true);
}

// NCCL makes nothing of these calls, so that nothing but their comparison is a meeting.
TEST(CallCheckTest, AMemberThatHasLeftIsComparedStill) {
  RunNccl(
      "tp/0", 2, Within(kNever),
      [](NcclRank& rank) {
        Data data(4096);
        if (rank.group.rank() == 1) std::this_thread::sleep_for(milliseconds(200));
        EXPECT_TRUE(AddUp(0).call(rank, data).ok());
        if (rank.group.rank() == 0) return;
        std::this_thread::sleep_for(milliseconds(200));
        EXPECT_TRUE(rank.group.status().ok()) << rank.group.status();
      },
      /*checked=*/true);
}

TEST(CallCheckTest, AnAbortEndsTheCheck) {
  const Clock::time_point begin = Clock::now();
  std::promise<void> called;
  RunNccl(
      "tp/0", 2, Within(kNever),
      [&called](NcclRank& rank) {
        Data data(4096);
        if (rank.group.rank() == 0) {
          EXPECT_TRUE(AddUp(100).call(rank, data).ok());
          called.set_value();
        } else {
          called.get_future().wait();
        }
        rank.group.Abort("over");
        rank.stream.Synchronize();
        EXPECT_THAT(rank.group.status().code(),
                    AnyOf(StatusCode::kAborted, StatusCode::kUnavailable))
            << "of this member, or of the other one: " << rank.group.status();
      },
      /*checked=*/true);
  EXPECT_LT(Clock::now() - begin, kSoon);
}

// Others put their own work under the same watch (worker/parallel/pipeline/peer_link.h).
TEST(CallCheckFactoryTest, HasTheWatchOfTheFactoryBelow) {
  QueueDevice device;
  MemoryStore store;
  const auto nccl = MakeNcclFactory(&store, {}, StandIn(), &device);
  ASSERT_NE(nccl->watch(), nullptr);
  EXPECT_EQ(MakeCheckedFactory(nccl.get(), nccl.get(), {})->watch(), nccl->watch());
}

}  // namespace
}  // namespace mt::comm
