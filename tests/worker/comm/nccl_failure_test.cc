// How calls over NCCL end that cannot: hangs, errors behind a call, calls that differ, aborts that
// block. Hosts wait for their streams as the engine does, and look at the group's status then. The
// bounds are those of hangs, far above the measured times.
#include <array>
#include <chrono>
#include <future>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/comm/nccl_harness.h"
#include "worker/comm/memory_store.h"
#include "worker/comm/nccl/nccl_factory.h"
#include "worker/comm/nccl/nccl_group.h"

namespace mt::comm {
namespace {

using absl::StatusCode;
using kernels::DType;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr seconds kBound(100);
// Of groups with a call that never ends. The calls before it have to succeed within it, on a busy
// machine too.
constexpr milliseconds kLate(2000);

std::string Text(const Status& status) { return std::string(status.ToString()); }

CommConfig Deadline(milliseconds op_timeout) {
  CommConfig config;
  config.op_timeout = op_timeout;
  return config;
}

Status AddUp(NcclRank& rank, std::vector<float>& data) {
  return rank.group.AllReduce(rank.stream, data.data(), data.data(),
                              static_cast<int64_t>(data.size()), DType::kF32, ReduceOp::kSum);
}

// Waits for the stream; a status that broke the group may come a little later.
Status EndOf(NcclRank& rank) {
  rank.stream.Synchronize();
  return rank.group.status();
}

TEST(NcclFailure, ACallThatHangsEndsByTheDeadline) {
  const WithKnobs knobs("hang=1@1");
  const Clock::time_point begin = Clock::now();
  RunNccl("tp/0", 2, Deadline(kLate), [&](NcclRank& rank) {
    std::vector<float> data(8);
    EXPECT_EQ(AddUp(rank, data), OkStatus());
    EXPECT_EQ(AddUp(rank, data), OkStatus()) << "a call returns before it is done";
    const Status status = EndOf(rank);
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(Text(status), AllOf(HasSubstr("group tp/0"), HasSubstr("all_reduce sum of 8 f32"),
                                    HasSubstr("call 2"),
                                    HasSubstr(fmt::format("rank {} (world {})", rank.group.rank(),
                                                          rank.group.rank() + 10))));
    EXPECT_EQ(AddUp(rank, data), status) << "a broken group stays broken";
    EXPECT_EQ(rank.group.Barrier(rank.stream), status);
  });
  EXPECT_LT(Clock::now() - begin, kBound);
}

// More calls are under way than are watched one by one.
TEST(NcclFailure, AHangFarBehindTheFirstCallIsFound) {
  const WithKnobs knobs("hang=150@0");
  const Clock::time_point begin = Clock::now();
  RunNccl("far", 2, Deadline(kLate), [&](NcclRank& rank) {
    std::vector<float> data(8);
    std::promise<void> open;
    EnqueueOn(rank.stream, [gate = open.get_future().share()] { gate.wait(); });
    for (int i = 0; i < 151; ++i) EXPECT_EQ(AddUp(rank, data), OkStatus());
    open.set_value();
    const Status status = EndOf(rank);
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(Text(status), HasSubstr("151")) << "the call that hangs is among those named";
  });
  EXPECT_LT(Clock::now() - begin, kBound);
}

TEST(NcclFailure, ABarrierThatHangsEndsByTheDeadline) {
  const WithKnobs knobs("hang=0@0");
  RunNccl("control", 2, Deadline(kLate), [&](NcclRank& rank) {
    const Status status = rank.group.Barrier(rank.stream);
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(Text(status), HasSubstr("group control"));
  });
}

// NCCL connects two ranks at their first message: there the call itself blocks.
TEST(NcclFailure, AFirstMessageWhosePeerDoesNotComeEndsByTheDeadline) {
  const Clock::time_point begin = Clock::now();
  RunNccl("pp-act/0-1", 2, Deadline(kLate), [&](NcclRank& rank) {
    if (rank.group.rank() == 1) return;  // never calls
    std::vector<float> data(8);
    const Status status = rank.group.Send(rank.stream, data.data(), 8, DType::kF32, 1, 0);
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(Text(status), AllOf(HasSubstr("group pp-act/0-1"),
                                    HasSubstr("send of 8 f32 to rank 1"), HasSubstr("call 1")));
    EXPECT_EQ(rank.group.status(), status);
  });
  EXPECT_LT(Clock::now() - begin, kBound);
}

TEST(NcclFailure, AFirstMessageWhosePeerDoesNotComeEndsByAnAbort) {
  const Clock::time_point begin = Clock::now();
  RunNccl("pp-act/0-1", 2, {}, [&](NcclRank& rank) {
    if (rank.group.rank() == 1) return;  // never calls
    std::thread leave([&rank] {
      std::this_thread::sleep_for(milliseconds(50));
      rank.group.Abort("a peer is gone");
    });
    std::vector<float> data(8);
    const Status status =
        rank.group.AllToAll(rank.stream, data.data(), data.data() + 4, 2, DType::kF32);
    EXPECT_EQ(status.code(), StatusCode::kAborted) << status;
    leave.join();
  });
  EXPECT_LT(Clock::now() - begin, kBound);
}

TEST(NcclFailure, AnErrorBehindTheCallsIsFound) {
  const WithKnobs knobs("error=2");
  const Clock::time_point begin = Clock::now();
  RunNccl("dp/3", 2, {}, [&](NcclRank& rank) {
    std::vector<float> data(8);
    // All are under way before one runs: behind the second the third would be refused, or the error
    // be found while none is under way.
    std::promise<void> open;
    EnqueueOn(rank.stream, [gate = open.get_future().share()] { gate.wait(); });
    for (int i = 0; i < 3; ++i) EXPECT_EQ(AddUp(rank, data), OkStatus());
    open.set_value();
    const Status status = EndOf(rank);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
    EXPECT_THAT(Text(status), AllOf(HasSubstr("group dp/3"), HasSubstr("all_reduce sum of 8 f32"),
                                    HasSubstr("remote process exited or there was a network error"),
                                    HasSubstr(fmt::format("rank {} (world", rank.group.rank()))));
  });
  EXPECT_LT(Clock::now() - begin, kBound);
}

TEST(NcclFailure, ACallThatNcclRefusesBreaksTheGroup) {
  const WithKnobs knobs("refuse=1");
  RunNccl("refused", 2, {}, [&](NcclRank& rank) {
    std::vector<float> data(8);
    EXPECT_EQ(AddUp(rank, data), OkStatus());
    const Status status = AddUp(rank, data);
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status;
    EXPECT_THAT(Text(status), AllOf(HasSubstr("group refused"), HasSubstr("all_reduce sum of 8"),
                                    HasSubstr("unhandled cuda error")));
    EXPECT_EQ(EndOf(rank), status);
  });
}

// Rank 1 does something else than rank 0: neither sees that, and the deadline names both.
void Differ(const std::function<Status(NcclRank&, std::vector<float>&)>& other,
            const std::string& name_of_other) {
  const Clock::time_point begin = Clock::now();
  RunNccl("differ", 2, Deadline(kLate), [&](NcclRank& rank) {
    std::vector<float> word(1), data(400000);
    EXPECT_EQ(AddUp(rank, word), OkStatus());  // one piece: the deadline is the next call's
    const Status called = rank.group.rank() == 0 ? AddUp(rank, data) : other(rank, data);
    const Status status = EndOf(rank);
    // A first message says it by itself, since it waits for its peer.
    EXPECT_TRUE(called.ok() || called == status) << called;
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(
        Text(status),
        AllOf(HasSubstr("group differ"), HasSubstr("call 2"),
              HasSubstr(rank.group.rank() == 0 ? "all_reduce sum of 400000 f32" : name_of_other)));
  });
  EXPECT_LT(Clock::now() - begin, kBound);
}

TEST(NcclFailure, CallsThatDifferEndByTheDeadline) {
  Differ(
      [](NcclRank& rank, std::vector<float>& data) {
        return rank.group.AllGather(rank.stream, data.data(), data.data(), 200000, DType::kF32);
      },
      "all_gather of 200000 f32 a shard");
  Differ(
      [](NcclRank& rank, std::vector<float>& data) {
        return rank.group.AllReduce(rank.stream, data.data(), data.data(), 300000, DType::kF32,
                                    ReduceOp::kSum);
      },
      "all_reduce sum of 300000 f32");
  Differ(
      [](NcclRank& rank, std::vector<float>& data) {
        return rank.group.Recv(rank.stream, data.data(), 400000, DType::kF32, 0, 0);
      },
      "recv of 400000 f32 from rank 0");
}

TEST(NcclFailure, AnAbortByAnotherThreadEndsTheWait) {
  const Clock::time_point begin = Clock::now();
  RunNccl("left", 2, {}, [&](NcclRank& rank) {
    std::vector<float> data(400000);
    // Rank 1 never comes; both are told to leave.
    if (rank.group.rank() == 0) {
      EXPECT_EQ(AddUp(rank, data), OkStatus());
    }
    std::thread leave([&rank] {
      std::this_thread::sleep_for(milliseconds(100));
      rank.group.Abort("a peer is gone");
      rank.group.Abort("again, too late");
    });
    const Status at_the_end = EndOf(rank);
    leave.join();
    if (rank.group.rank() == 0) {
      EXPECT_EQ(at_the_end.code(), StatusCode::kAborted) << at_the_end;
    }
    EXPECT_THAT(Text(rank.group.status()),
                AllOf(HasSubstr("ABORTED: group left"), HasSubstr("a peer is gone")));
    EXPECT_EQ(AddUp(rank, data), rank.group.status());
  });
  EXPECT_LT(Clock::now() - begin, kBound);
}

// Of two groups the first waits for what the second is stuck in: only aborts beside each other end.
TEST(NcclFailure, AbortsOfSeveralGroupsDoNotWaitForEachOther) {
  MemoryStore store;
  const Clock::time_point begin = Clock::now();
  std::vector<std::thread> threads;
  for (const int index : {0, 1}) {
    threads.emplace_back([&, index] {
      QueueDevice device;
      const auto stream = device.CreateStream(kernels::StreamPriority::kHigh);
      const auto factory = MakeNcclFactory(&store, {}, StandIn(), &device);
      const auto outer = factory->Create({.name = "outer", .members = {0, 1}, .my_index = index});
      const auto inner = factory->Create({.name = "inner", .members = {0, 1}, .my_index = index});
      ASSERT_TRUE(outer.ok() && inner.ok());
      std::vector<float> data(8);
      for (ProcessGroup* group : {inner->get(), outer->get()}) {
        if (index == 1) continue;  // never comes
        EXPECT_EQ(
            group->AllReduce(*stream, data.data(), data.data(), 8, DType::kF32, ReduceOp::kSum),
            OkStatus());
      }
      (*outer)->Abort("the epoch ends");
      (*inner)->Abort("the epoch ends");
      stream->Synchronize();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(Clock::now() - begin, kBound);
}

TEST(NcclFailure, AnAbortThatBlocksHoldsNobody) {
  const WithKnobs knobs("abort_ms=20000");
  const Clock::time_point begin = Clock::now();
  RunNccl("slow", 2, {}, [&](NcclRank& rank) {
    std::vector<float> data(8);
    if (rank.group.rank() == 0) {
      EXPECT_EQ(AddUp(rank, data), OkStatus());
    }
    rank.group.Abort("over");
    EXPECT_LT(Clock::now() - begin, seconds(10)) << "Abort returns at once, not in 20 s";
    EXPECT_EQ(EndOf(rank).code(), StatusCode::kAborted);
    EXPECT_EQ(AddUp(rank, data).code(), StatusCode::kAborted);
    EXPECT_EQ(rank.group.Barrier(rank.stream).code(), StatusCode::kAborted);
  });
  EXPECT_LT(Clock::now() - begin, kBound) << "nor does the end of the group wait for it";
}

TEST(NcclFailure, AGroupIsDestroyedWithACallUnderWay) {
  // Rank 1 leaves without the call: rank 0's cannot end, and its memory may go with the group.
  const Clock::time_point begin = Clock::now();
  RunNccl("unfinished", 2, {}, [&](NcclRank& rank) {
    static std::array<std::vector<float>, 2> of_ranks;
    std::vector<float>* const data = &of_ranks[static_cast<size_t>(rank.group.rank())];
    data->resize(400000);
    EXPECT_EQ(AddUp(rank, *data), OkStatus());
    if (rank.group.rank() == 0) {
      EXPECT_EQ(AddUp(rank, *data), OkStatus());
    }
  });
  EXPECT_LT(Clock::now() - begin, 2 * kBound);
}

TEST(NcclFailure, AbortsInTheMiddleOfRunningCollectives) {
  for (int trial = 0; trial < 10; ++trial) {
    std::latch all_out(2);  // of the barrier, which an abort may end for those inside
    RunNccl("race", 2, {}, [&](NcclRank& rank) {
      std::vector<float> data(100003);
      EXPECT_EQ(rank.group.Barrier(rank.stream), OkStatus());
      all_out.arrive_and_wait();
      std::thread aborter([&] {
        std::this_thread::sleep_for(milliseconds(trial));
        rank.group.Abort("now");
      });
      Status status = OkStatus();
      for (int i = 0; status.ok(); ++i) {
        status = AddUp(rank, data);
        if (i % 5 == 4) rank.stream.Synchronize();
      }
      EXPECT_EQ(status.code(), StatusCode::kAborted) << status;
      aborter.join();
      rank.stream.Synchronize();  // what was enqueued leaves the stream
    });
  }
}

// By all that have come; where it is the first one, which would look after the others, by its name.
TEST(NcclFailure, AMemberThatNeverComesIsNamed) {
  CommConfig config;
  config.connect_timeout = kLate;
  for (const int missing : {0, 1, 2}) {
    MemoryStore store;
    std::vector<std::thread> threads;
    for (int index = 0; index < 3; ++index) {
      if (index == missing) continue;
      threads.emplace_back([&, index] {
        QueueDevice device;
        const auto factory = MakeNcclFactory(&store, config, StandIn(), &device);
        // The first one answers when nine tenths of its time are over: whoever began earlier may
        // have given up by then.
        if (index > 0 && missing != 0) {
          EXPECT_TRUE(store.Get("nccl/lonely/0", Clock::now() + kBound).ok());
        }
        const Status group =
            factory->Create({.name = "lonely", .members = {31, 32, 33}, .my_index = index})
                .status();
        EXPECT_EQ(group.code(), StatusCode::kDeadlineExceeded) << group;
        EXPECT_THAT(Text(group), AllOf(HasSubstr("group lonely"),
                                       HasSubstr(fmt::format("rank {}", 31 + missing))));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(NcclFailure, TwoRanksOfOneGpuAreRefused) {
  MemoryStore store;
  QueueDevice device;
  std::vector<std::thread> threads;
  for (const int index : {0, 1}) {
    threads.emplace_back([&, index] {
      const auto factory = MakeNcclFactory(&store, {}, StandIn(), &device);
      const auto group =
          factory->Create({.name = "twice", .members = {3, 5}, .my_index = index}).status();
      EXPECT_EQ(group.code(), StatusCode::kFailedPrecondition) << group;
      EXPECT_THAT(Text(group), AllOf(HasSubstr("ranks 3 and 5"), HasSubstr(device.Uuid())));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace mt::comm
