// The traces of ranks at the first one, by its clock.
#include "worker/trace/gather_traces.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "megatrain/v1/trace.pb.h"
#include "worker/comm/threads/hub.h"

namespace mt::trace {
namespace {

namespace v1 = megatrain::v1;

// A real clock that is ahead by so much.
class AheadClock final : public base::Clock {
 public:
  explicit AheadClock(std::chrono::nanoseconds by) : by_(by) {}
  base::MonotonicTime Now() const override { return base::Clock::Real()->Now() + by_; }
  base::WallTime WallNow() const override { return base::Clock::Real()->WallNow(); }

 private:
  const std::chrono::nanoseconds by_;
};

v1::RankTrace TraceOf(int rank, const std::string& boot) {
  v1::RankTrace trace;
  trace.set_rank(rank);
  trace.set_boot_id(boot);
  trace.set_base_ns(1'000'000'000'000);
  return trace;
}

TEST(GatherTraces, TheOffsetIsTheMedian) {
  EXPECT_EQ(ClockOffset({100, 200, 300}, {105, 207, 900}), 7);
  EXPECT_EQ(ClockOffset({10}, {4}), -6);
}

TEST(GatherTraces, OneRankHasItsOwn) {
  const auto backend = kernels::cpu::MakeCpuBackend({.num_threads = 1}).value();
  const auto stream = backend->device().CreateStream(kernels::StreamPriority::kLow);
  v1::JobTrace job;
  ASSERT_TRUE(GatherTraces(nullptr, stream.get(), base::Clock::Real(), TraceOf(0, "a"), &job).ok());
  ASSERT_EQ(job.ranks_size(), 1);
  EXPECT_EQ(job.ranks(0).base_ns(), 1'000'000'000'000);
}

// Rank 1 has the clock of rank 0; that of rank 2 is an hour ahead, and its trace comes an hour
// earlier.
TEST(GatherTraces, RanksOfOtherHostsAreMoved) {
  constexpr std::chrono::nanoseconds kHour = std::chrono::hours(1);
  constexpr int kRanks = 3;
  comm::ThreadsHub hub(comm::CommConfig{});
  std::vector<v1::JobTrace> jobs(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto backend = kernels::cpu::MakeCpuBackend({.num_threads = 1}).value();
      const auto stream = backend->device().CreateStream(kernels::StreamPriority::kLow);
      const auto group =
          hub.Create({.name = "world", .members = {0, 1, 2}, .my_index = rank}).value();
      const AheadClock clock(rank == 2 ? kHour : std::chrono::nanoseconds(0));
      const Status gathered =
          GatherTraces(group.get(), stream.get(), &clock, TraceOf(rank, rank == 2 ? "b" : "a"),
                       &jobs[static_cast<size_t>(rank)]);
      EXPECT_TRUE(gathered.ok()) << gathered;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(jobs[1].ranks_size() + jobs[2].ranks_size(), 0);
  ASSERT_EQ(jobs[0].ranks_size(), kRanks);
  for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(jobs[0].ranks(rank).rank(), rank);
  EXPECT_EQ(jobs[0].ranks(1).base_ns(), 1'000'000'000'000);
  const int64_t moved = 1'000'000'000'000 - jobs[0].ranks(2).base_ns();
  // To how far apart threads of a busy host leave a barrier.
  EXPECT_NEAR(static_cast<double>(moved), static_cast<double>(kHour.count()), 5e9);
}

}  // namespace
}  // namespace mt::trace
