// The CPU backend as a whole: configurations it refuses, its memory and threads, and that a
// repeated run gives equal bits.
#include "kernels/ops/backend.h"

#include <atomic>
#include <cstring>
#include <thread>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/thread_pool.h"
#include "tests/kernels/cpu/op_test.h"

namespace mt::kernels::cpu {
namespace {

TEST(BackendTest, RefusesImpossibleThreadCounts) {
  for (const int threads : {0, -1, 100000}) {
    const auto backend = MakeCpuBackend({.num_threads = threads});
    EXPECT_EQ(backend.status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(BackendTest, DescribesItself) {
  EXPECT_EQ(Cpu(2).device().kind(), DeviceKind::kCpu);
  EXPECT_EQ(Cpu(2).device().Describe(), "cpu, 2 threads, OpenBLAS " + OpenBlasCoreType());
  EXPECT_FALSE(OpenBlasCoreType().empty());
}

TEST(DeviceTest, BuffersAreAlignedAndZero) {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{5000}, int64_t{5} << 20}) {
    const auto buffer = Cpu(1).device().Allocate(bytes, MemoryKind::kDevice);
    EXPECT_EQ(buffer->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 256, 0U);
    const char* data = static_cast<const char*>(buffer->data());
    for (int64_t i = 0; i < bytes; ++i) ASSERT_EQ(data[i], 0);
  }
}

TEST(DeviceTest, RefusesMoreMemoryThanThereIs) {
  EXPECT_THROW(Cpu(1).device().Allocate(int64_t{1} << 60, MemoryKind::kDevice), DeviceError);
}

TEST(DeviceTest, CopiesAndZeroesAtOnce) {
  Uniform random(61);
  Array<float> from = random.Make<float>({700001}), to({700001});
  Device& device = Cpu(3).device();
  device.Copy(AnyStream(), to.data(), from.data(), from.size() * 4);
  EXPECT_TRUE(to == from);
  device.Zero(AnyStream(), to.data(), to.size() * 4);
  EXPECT_TRUE(to == Array<float>({700001}));
  const auto event = device.CreateEvent();
  event->Record(AnyStream());
  AnyStream().Wait(*event);
  event->Synchronize();
  EXPECT_TRUE(event->IsDone());
}

TEST(ThreadPoolTest, RangesCoverEverythingOnce) {
  ThreadPool pool(3);
  for (const int64_t n : {0, 1, 2, 3, 10, 1000}) {
    for (const int64_t grain : {1, 7, 5000}) {
      std::vector<int> hits(static_cast<size_t>(n));
      std::atomic<int> calls{0};
      pool.ForRanges(n, grain, [&](int64_t begin, int64_t end) {
        ++calls;
        for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
      });
      for (const int hit : hits) ASSERT_EQ(hit, 1);
      EXPECT_LE(calls, std::min<int64_t>(3, (n + grain - 1) / grain));
    }
  }
}

TEST(ThreadPoolTest, TasksGoToTheThreadThatTheirNumberNames) {
  ThreadPool pool(3);
  std::vector<int> owner(20, -1);
  pool.ForTasks(20, [&](int64_t task, int thread) { owner[static_cast<size_t>(task)] = thread; });
  for (int task = 0; task < 20; ++task) EXPECT_EQ(owner[static_cast<size_t>(task)], task % 3);
}

TEST(ThreadPoolTest, SeveralCallersShareIt) {
  ThreadPool pool(2);
  std::atomic<int64_t> total{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        pool.ForRanges(10, 1, [&](int64_t begin, int64_t end) { total += end - begin; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 3 * 500 * 10);
}

TEST(GemmTest, EveryThreadCountCoversTheWholeResult) {
  // Integers below 2^24: exact in fp32 in any order, so every grid must give the same numbers.
  constexpr int64_t kM = 203, kN = 149, kK = 101;
  Array<float> a({kM, kK}), b({kK, kN}), c({kM, kN}), expected({kM, kN});
  for (int64_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 17 - 8);
  for (int64_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 13 - 6);
  GemmArgs<float> args{.m = kM,
                       .n = kN,
                       .k = kK,
                       .a = a.data(),
                       .lda = kK,
                       .b = b.data(),
                       .ldb = kN,
                       .c = expected.data(),
                       .ldc = kN};
  Gemm(args);
  args.c = c.data();
  for (int threads = 1; threads <= 9; ++threads) {
    ThreadPool pool(threads);
    c = Array<float>({kM, kN}, NAN);
    args.c = c.data();
    ParallelGemm(pool, args);
    ASSERT_TRUE(c == expected) << threads;
  }
}

// A feed-forward block, forward and backward, with GEMMs large enough to be split.
Array<float> Block(int threads) {
  constexpr int64_t kTokens = 200, kH = 96, kN = 384;
  const LinearOps& linear = Cpu(threads).linear();
  Uniform random(62);
  Array<float> x = random.Make<float>({kTokens, kH}), w = random.Make<float>({kN, kH}),
               dy = random.Make<float>({kTokens, kN});
  Array<float> pre({kTokens, kN}), y({kTokens, kN}), dw({kN, kH});
  linear.ForwardAct(AnyStream(),
                    {.x = x.tensor(), .w = w.tensor(), .pre = pre.tensor(), .y = y.tensor()});
  linear.WeightGrad(AnyStream(), {.dy = y.tensor(), .x = x.tensor(), .dw = dw.tensor()});
  return dw;
}

TEST(DeterminismTest, TheSameThreadCountGivesTheSameBits) {
  for (const int threads : {1, 2}) {
    const Array<float> first = Block(threads);
    for (int round = 0; round < 5; ++round) ASSERT_TRUE(Block(threads) == first) << threads;
  }
}

TEST(UnsupportedDeathTest, IntegerActivationsAreNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Array<int32_t> x({8});
  EXPECT_DEATH(Cpu(1).act().Act(AnyStream(), {.pre = x.tensor(), .y = x.tensor()}),
               "Act takes floats, not i32");
}

}  // namespace
}  // namespace mt::kernels::cpu
