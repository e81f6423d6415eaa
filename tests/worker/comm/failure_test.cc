// Failures within one process: deadlines, aborts, members that leave, calls that differ. Every wait
// must end; the bounds for hangs are far above the measured times.
#include "worker/failure/failure.h"

#include <atomic>
#include <chrono>
#include <latch>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/comm/group_harness.h"
#include "worker/comm/process_group.h"

namespace mt::comm {
namespace {

using absl::StatusCode;
using kernels::DType;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int64_t kLarge = 3 << 20;

std::string Text(const Status& status) { return std::string(status.ToString()); }

// A device that fails under a call.
class ThrowingGroup final : public ProcessGroup {
 public:
  ThrowingGroup() : ProcessGroup({.name = "dp/3", .members = {4, 5}, .my_index = 1}, {}) {}
  int num_broken = 0;

 private:
  Status DoCall(kernels::Stream&, const Call&, base::MonotonicTime) override {
    throw kernels::DeviceError("an uncorrectable error");
  }
  void OnBroken() override { ++num_broken; }
};

TEST(ThrowingGroupTest, WhatACallThrowsBreaksTheGroupAndNamesTheCall) {
  ThrowingGroup group;
  InlineStream stream;
  float value = 0;
  const Status status = group.AllReduce(stream, &value, &value, 1, DType::kF32, ReduceOp::kSum);
  EXPECT_EQ(failure::CauseOf(status), failure::Cause::kHardware);
  for (const char* const part :
       {"group dp/3, rank 1 (world 5) of 2", "all_reduce sum of 1 f32", "an uncorrectable error"})
    EXPECT_NE(Text(status).find(part), std::string::npos) << status;
  EXPECT_EQ(group.Barrier(stream), status) << "no call is under way, and the group stays broken";
  EXPECT_EQ(group.num_broken, 1);
  EXPECT_EQ(group.Stats().inflight_seconds, 0);
}

// Whose calls do nothing.
class IdleGroup final : public ProcessGroup {
 public:
  IdleGroup() : ProcessGroup({.name = "dp/3", .members = {4, 5}, .my_index = 1}, {}) {}

 private:
  Status DoCall(kernels::Stream&, const Call&, base::MonotonicTime) override { return OkStatus(); }
  void OnBroken() override {}
};

TEST(FlightRecordTest, KeepsTheLatestCallsByNumber) {
  IdleGroup group;
  InlineStream stream;
  EXPECT_EQ(group.flight_record().Describe(), "");
  float value = 0;
  for (int i = 0; i < 12; ++i) {
    EXPECT_TRUE(group.Broadcast(stream, &value, 1, DType::kF32, 0).ok());
  }
  EXPECT_TRUE(group.Barrier(stream).ok());
  const Status refused = group.Broadcast(stream, &value, 1, DType::kF32, 7);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << "and is no call";
  std::string expected;
  for (int n = 6; n <= 12; ++n)
    expected += fmt::format("call {}: broadcast of 1 f32 from rank 0; ", n);
  EXPECT_EQ(group.flight_record().Describe(), expected + "call 13: barrier");
}

class FailureTest : public testing::TestWithParam<Kind> {};

TEST_P(FailureTest, ADeadlineEndsTheCallAndTheGroup) {
  for (const int64_t count : {int64_t{8}, kLarge}) {
    CommConfig config;
    config.op_timeout = milliseconds(200);
    Ranks ranks(GetParam(), 3, config);
    std::atomic<int> done = 0;
    ranks.Run("late", [&](ProcessGroup& group) {
      InlineStream stream;
      std::vector<float> data(static_cast<size_t>(count));
      if (group.rank() == 2) {
        // Never calls; stays until the others are through.
        while (done < 2) std::this_thread::sleep_for(milliseconds(5));
        return;
      }
      const Status status =
          group.AllReduce(stream, data.data(), data.data(), count, DType::kF32, ReduceOp::kSum);
      // The first to run out of time breaks the group; the other may learn of that instead.
      EXPECT_TRUE(status.code() == StatusCode::kDeadlineExceeded ||
                  status.code() == StatusCode::kUnavailable)
          << status;
      EXPECT_NE(Text(status).find("group late"), std::string::npos) << status;
      EXPECT_EQ(group.status(), status);
      EXPECT_EQ(group.Barrier(stream), status) << "a broken group stays broken";
      ++done;
    });
    EXPECT_EQ(done, 2);
  }
}

// Whoever is in a group may go at once: one that is still joining joins or is told, and lives on.
TEST_P(FailureTest, OneThatBreaksRightAfterJoiningHurtsNobodyWhoStillJoins) {
  constexpr int kRanks = 4;
  Ranks ranks(GetParam(), kRanks);
  for (int round = 0; round < 40; ++round) {
    const std::string name = fmt::format("brief/{}", round);
    std::atomic<int> told = 0;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        auto group =
            ranks.factory(rank).Create({.name = name, .members = {0, 1, 2, 3}, .my_index = rank});
        if (group.ok() && rank == round % kRanks) (*group)->Abort("done");
        if (group.ok()) return;
        EXPECT_EQ(group.status().code(), StatusCode::kUnavailable) << group.status();
        ++told;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_LT(told, kRanks) << "somebody joined and left";
  }
}

TEST_P(FailureTest, ADeadlineEndsReceive) {
  CommConfig config;
  config.op_timeout = milliseconds(100);
  Ranks ranks(GetParam(), 2, config);
  std::atomic<bool> done = false;
  ranks.Run("silence", [&](ProcessGroup& group) {
    InlineStream stream;
    if (group.rank() == 1) {
      while (!done) std::this_thread::sleep_for(milliseconds(5));
      return;
    }
    float x = 0;
    const Status status = group.Recv(stream, &x, 1, DType::kF32, 1, 0);
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
    EXPECT_NE(Text(status).find("from rank 1 on edge 0"), std::string::npos) << status;
    done = true;
  });
}

// By the configuration no call may take any time.
TEST_P(FailureTest, AScopeGivesAnotherDeadlineAndTakesItBack) {
  CommConfig config;
  config.op_timeout = milliseconds(0);
  Ranks ranks(GetParam(), 2, config);
  ranks.Run("patience", [&](ProcessGroup& group) {
    InlineStream stream;
    {
      const OpTimeoutScope patience(&group, std::chrono::minutes(2));
      EXPECT_EQ(group.op_timeout(), std::chrono::minutes(2));
      const Status status = group.Barrier(stream);
      EXPECT_TRUE(status.ok()) << status;
    }
    EXPECT_EQ(group.op_timeout(), milliseconds(0));
    if (group.rank() == 1) return;
    float x = 0;
    const Status status = group.Recv(stream, &x, 1, DType::kF32, 1, 0);
    EXPECT_FALSE(status.ok()) << "late, or the other has left";
  });
  const OpTimeoutScope of_nobody(nullptr, milliseconds(1));
}

// Ranks 0 and 1 wait in a call that cannot end, for rank 2; rank 0 is aborted by another thread.
// The default deadline of ten minutes would show as a hang.
template <class Call>
void AbortDuring(Kind kind, Call call) {
  Ranks ranks(kind, 3);
  std::atomic<int> done = 0;
  ranks.Run("stuck", [&](ProcessGroup& group) {
    InlineStream stream;
    if (group.rank() == 2) {
      while (done < 2) std::this_thread::sleep_for(milliseconds(5));
      return;
    }
    std::thread aborter;
    std::chrono::steady_clock::time_point aborted;
    if (group.rank() == 0) {
      aborter = std::thread([&] {
        std::this_thread::sleep_for(milliseconds(100));
        aborted = std::chrono::steady_clock::now();
        group.Abort("the job was stopped");
        group.Abort("again, too late");
      });
    }
    const Status status = call(group, stream);
    const auto returned = std::chrono::steady_clock::now();
    if (aborter.joinable()) aborter.join();
    if (group.rank() == 0) {
      EXPECT_EQ(status.code(), StatusCode::kAborted) << status;
      EXPECT_NE(Text(status).find("the job was stopped"), std::string::npos) << status;
      EXPECT_LT(returned - aborted, seconds(100)) << "a hang bound: the deadline is ten minutes";
    } else {
      EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
      EXPECT_NE(Text(status).find("rank 0 (world 10)"), std::string::npos) << status;
    }
    EXPECT_EQ(call(group, stream), status);
    ++done;
  });
  EXPECT_EQ(done, 2);
}

TEST_P(FailureTest, AbortEndsASmallCollective) {
  AbortDuring(GetParam(),
              [](ProcessGroup& group, InlineStream& stream) { return group.Barrier(stream); });
}

TEST_P(FailureTest, AbortEndsALargeCollective) {
  AbortDuring(GetParam(), [](ProcessGroup& group, InlineStream& stream) {
    std::vector<float> data(kLarge);
    return group.AllReduce(stream, data.data(), data.data(), kLarge, DType::kF32, ReduceOp::kSum);
  });
}

TEST_P(FailureTest, AbortEndsReceiveAndTheReceiverOfTheAborted) {
  AbortDuring(GetParam(), [](ProcessGroup& group, InlineStream& stream) {
    float x = 0;
    // Rank 0 waits for rank 2, rank 1 for rank 0.
    return group.Recv(stream, &x, 1, DType::kF32, group.rank() == 0 ? 2 : 0, 0);
  });
}

TEST_P(FailureTest, AbortBetweenCallsIsSeenByTheNext) {
  Ranks ranks(GetParam(), 2);
  std::latch all_out(2);  // who has left a barrier knows that all have come, not that all left
  ranks.Run("idle", [&](ProcessGroup& group) {
    InlineStream stream;
    EXPECT_EQ(group.Barrier(stream), OkStatus());
    all_out.arrive_and_wait();
    if (group.rank() == 0) {
      group.Abort("enough");
      EXPECT_EQ(group.Barrier(stream).code(), StatusCode::kAborted);
    } else {
      EXPECT_EQ(group.Barrier(stream).code(), StatusCode::kUnavailable);
    }
  });
}

TEST_P(FailureTest, AMemberThatLeavesEndsTheOthersWaits) {
  for (const int64_t count : {int64_t{8}, kLarge}) {
    Ranks ranks(GetParam(), 3);
    ranks.Run("leave", [&](ProcessGroup& group) {
      InlineStream stream;
      if (group.rank() == 1) return;
      std::vector<float> data(static_cast<size_t>(count));
      const Status status =
          group.AllReduce(stream, data.data(), data.data(), count, DType::kF32, ReduceOp::kSum);
      EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
      EXPECT_NE(Text(status).find("all_reduce sum of"), std::string::npos) << status;
      EXPECT_NE(Text(status).find("rank "), std::string::npos) << status;
    });
  }
}

TEST_P(FailureTest, AMemberThatLeavesEndsNoOtherWaits) {
  Ranks ranks(GetParam(), 3);
  ranks.Run("two stay", [&](ProcessGroup& group) {
    InlineStream stream;
    if (group.rank() == 2) return;
    float x = 0;
    if (group.rank() == 0) {
      // Longer than it mostly takes to notice: then the wait of rank 1 outlives that.
      std::this_thread::sleep_for(milliseconds(150));
      x = 7;
      EXPECT_EQ(group.Send(stream, &x, 1, DType::kF32, 1, 0), OkStatus());
      // What is sent to one whose end is not noticed yet is sent.
      Status status = OkStatus();
      while (status.ok()) status = group.Send(stream, &x, 1, DType::kF32, 2, 0);
      EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
      EXPECT_NE(Text(status).find("rank 2 (world 12)"), std::string::npos) << status;
    } else {
      EXPECT_EQ(group.Recv(stream, &x, 1, DType::kF32, 0, 0), OkStatus());
      EXPECT_EQ(x, 7);
    }
  });
}

TEST_P(FailureTest, LeavingAfterABarrierHarmsNobody) {
  Ranks ranks(GetParam(), 4);
  for (int round = 0; round < 50; ++round) {
    ranks.Run(fmt::format("round {}", round), [&](ProcessGroup& group) {
      InlineStream stream;
      ASSERT_EQ(group.Barrier(stream), OkStatus());
    });
  }
}

TEST_P(FailureTest, CallsThatDifferAreReported) {
  struct Difference {
    const char* what;
    int64_t count[2];
    DType dtype[2];
    ReduceOp op[2];
  };
  const Difference differences[] = {
      {"small counts", {8, 9}, {DType::kF32, DType::kF32}, {ReduceOp::kSum, ReduceOp::kSum}},
      {"large counts",
       {kLarge, kLarge + 1},
       {DType::kF32, DType::kF32},
       {ReduceOp::kSum, ReduceOp::kSum}},
      {"one of each path",
       {8, kLarge},
       {DType::kF32, DType::kF32},
       {ReduceOp::kSum, ReduceOp::kSum}},
      {"types", {8, 8}, {DType::kF32, DType::kI32}, {ReduceOp::kSum, ReduceOp::kSum}},
      {"types of two algorithms",
       {kLarge, kLarge},
       {DType::kBf16, DType::kF32},
       {ReduceOp::kSum, ReduceOp::kSum}},
      {"reductions", {8, 8}, {DType::kF32, DType::kF32}, {ReduceOp::kSum, ReduceOp::kMax}},
  };
  for (const Difference& difference : differences) {
    SCOPED_TRACE(difference.what);
    for (const int num_ranks : {2, 3}) {
      Ranks ranks(GetParam(), num_ranks);
      std::atomic<int> reported = 0;
      ranks.Run("differ", [&](ProcessGroup& group) {
        InlineStream stream;
        const size_t side = group.rank() == num_ranks - 1 ? 1 : 0;
        const int64_t count = difference.count[side];
        std::vector<float> data(static_cast<size_t>(count));
        const Status status = group.AllReduce(stream, data.data(), data.data(), count,
                                              difference.dtype[side], difference.op[side]);
        EXPECT_FALSE(status.ok());
        if (status.code() == StatusCode::kFailedPrecondition) {
          ++reported;
        } else {
          EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
        }
      });
      EXPECT_GE(reported, 1);
    }
  }
}

TEST_P(FailureTest, MessagesThatDifferAreReported) {
  struct Difference {
    int64_t sent;
    int64_t awaited;
    DType awaited_type;
  };
  for (const Difference& difference :
       {Difference{4, 5, DType::kF32}, Difference{kLarge, kLarge - 1, DType::kF32},
        Difference{4, kLarge, DType::kF32}, Difference{4, 4, DType::kI32}}) {
    Ranks ranks(GetParam(), 2);
    std::atomic<bool> done = false;
    ranks.Run("letters", [&](ProcessGroup& group) {
      InlineStream stream;
      std::vector<float> data(kLarge);
      if (group.rank() == 0) {
        const Status sent = group.Send(stream, data.data(), difference.sent, DType::kF32, 1, 7);
        // The receiver sees the difference in the header; over Gloo that is before the rest of a
        // large one has left.
        const bool may_be_late = GetParam() == Kind::kGloo && difference.sent == kLarge;
        EXPECT_TRUE(sent.ok() || (may_be_late && sent.code() == StatusCode::kUnavailable)) << sent;
        while (!done) std::this_thread::sleep_for(milliseconds(5));
        return;
      }
      const Status status =
          group.Recv(stream, data.data(), difference.awaited, difference.awaited_type, 0, 7);
      EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
      done = true;
    });
  }
}

TEST_P(FailureTest, AMemberThatNeverComesIsNamed) {
  CommConfig config;
  config.connect_timeout = milliseconds(100);
  Ranks ranks(GetParam(), 2, config);
  const auto group = ranks.factory(0).Create({.name = "lonely", .members = {0, 5}, .my_index = 0});
  EXPECT_EQ(group.status().code(), StatusCode::kDeadlineExceeded) << group.status();
  EXPECT_NE(Text(group.status()).find("rank 1 (world 5)"), std::string::npos) << group.status();
}

TEST_P(FailureTest, GroupsAreDestroyedWithMessagesUnderWay) {
  Ranks ranks(GetParam(), 2);
  ranks.Run("unread", [&](ProcessGroup& group) {
    InlineStream stream;
    std::vector<float> data(kLarge);
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(group.Send(stream, data.data(), kLarge, DType::kF32, 1 - group.rank(), 0),
                OkStatus());
    }
    ASSERT_EQ(group.Barrier(stream), OkStatus());
  });
}

TEST_P(FailureTest, AbortInTheMiddleOfRunningCollectives) {
  // Buffers die as soon as their call returns: nothing may touch them afterwards.
  for (int trial = 0; trial < 10; ++trial) {
    Ranks ranks(GetParam(), 3);
    std::latch all_out(3);  // as above: an abort may end the barrier for those inside
    ranks.Run("race", [&](ProcessGroup& group) {
      InlineStream stream;
      EXPECT_EQ(group.Barrier(stream), OkStatus());
      all_out.arrive_and_wait();
      std::thread aborter;
      if (group.rank() == trial % 3) {
        aborter = std::thread([&group, trial] {
          std::this_thread::sleep_for(milliseconds(trial));
          group.Abort("now");
        });
      }
      Status status = OkStatus();
      while (status.ok()) {
        std::vector<double> in(100003, group.rank());
        std::vector<double> out(in.size());
        status =
            group.AllReduce(stream, in.data(), out.data(), 100003, DType::kF64, ReduceOp::kSum);
      }
      EXPECT_EQ(status.code(),
                group.rank() == trial % 3 ? StatusCode::kAborted : StatusCode::kUnavailable)
          << status;
      if (aborter.joinable()) aborter.join();
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Implementations, FailureTest,
                         testing::Values(Kind::kThreads, Kind::kGloo, Kind::kShm),
                         [](const auto& param) { return Name(param.param); });

}  // namespace
}  // namespace mt::comm
