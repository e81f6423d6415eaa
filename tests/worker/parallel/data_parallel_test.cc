// Gradient reduction over thread ranks: sums, equal bits on all replicas, and the first error
// sticks.
#include "worker/parallel/data_parallel.h"

#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "worker/comm/threads/hub.h"

namespace mt::parallel {
namespace {

using params::Region;

// One replica: a matrix, a vector, their memory, its group.
struct Replica {
  Replica(comm::ThreadsHub* hub, int rank, int size)
      : backend(kernels::cpu::MakeCpuBackend({}).value()),
        stream(backend->device().CreateStream(kernels::StreamPriority::kLow)) {
    registry.Add({.name = "w", .shape = {64, 33}, .stored = {64, 33}, .region = Region::kMatrix});
    registry.Add({.name = "b", .shape = {33}, .stored = {33}, .region = Region::kReplicatedVector});
    layout.emplace(params::FlatLayout::Args{
        .registry = &registry, .dp_size = size, .min_bucket_elements = 64});
    store.emplace(&registry, &*layout, kernels::DType::kF32);
    memory::MemoryPlan plan;
    store->Plan(&plan);
    memory = memory::Memory::Allocate(backend->device(), plan, int64_t{1} << 30).value();
    store->Bind(*memory);
    std::vector<int> members;
    for (int r = 0; r < size; ++r) members.push_back(r);
    group = hub->Create({.name = "dp", .members = members, .my_index = rank}).value();
  }

  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<kernels::Stream> stream;
  params::Registry registry;
  std::optional<params::FlatLayout> layout;
  std::optional<params::ParamStore> store;
  std::unique_ptr<memory::Memory> memory;
  std::unique_ptr<comm::ProcessGroup> group;
};

void OnThreads(int size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) threads.emplace_back([&body, r] { body(r); });
  for (std::thread& thread : threads) thread.join();
}

TEST(DataParallelTest, SumsBucketsWithTheSameBitsEverywhere) {
  constexpr int kSize = 4;
  comm::ThreadsHub hub(comm::CommConfig{});
  std::vector<std::vector<float>> result(kSize);
  OnThreads(kSize, [&](int rank) {
    Replica replica(&hub, rank, kSize);
    DataParallel dp(replica.group.get());
    const kernels::Tensor g = replica.store->grads();
    for (int64_t i = 0; i < g.NumElements(); ++i) {
      g.Data<float>()[i] = 1.0F / static_cast<float>(1 + i * kSize + rank);
    }
    for (int b = 0; b < replica.layout->num_buckets(); ++b) {
      EXPECT_TRUE(dp.ReduceBucket(*replica.stream, *replica.store, b).ok());
    }
    result[static_cast<size_t>(rank)].assign(g.Data<float>(), g.Data<float>() + g.NumElements());
  });
  for (size_t i = 0; i < result[0].size(); ++i) {
    double expected = 0;
    for (size_t r = 0; r < kSize; ++r) expected += 1.0 / static_cast<double>(1 + i * kSize + r);
    ASSERT_NEAR(result[0][i], expected, 4e-7 * expected);
  }
  for (size_t r = 1; r < kSize; ++r) {
    EXPECT_EQ(std::memcmp(result[r].data(), result[0].data(), result[0].size() * sizeof(float)), 0);
  }
}

TEST(DataParallelTest, EndOfStepVectorIsSummed) {
  constexpr int kSize = 2;
  comm::ThreadsHub hub(comm::CommConfig{});
  OnThreads(kSize, [&](int rank) {
    Replica replica(&hub, rank, kSize);
    DataParallel dp(replica.group.get());
    kernels::EndOfStep v{.sum_squares = 1.5 + rank,
                         .loss = 10.0 * (rank + 1),
                         .tokens = 8,
                         .command = rank == 0 ? 5.0 : 0.0,
                         .fault = static_cast<double>(rank)};
    EXPECT_TRUE(dp.ReduceEndOfStep(*replica.stream, &v).ok());
    EXPECT_EQ(v.sum_squares, 4.0);
    EXPECT_EQ(v.loss, 30.0);
    EXPECT_EQ(v.tokens, 16.0);
    EXPECT_EQ(v.command, 5.0);
    EXPECT_EQ(v.fault, 1.0);
  });
}

TEST(DataParallelTest, FirstErrorSticks) {
  constexpr int kSize = 2;
  comm::ThreadsHub hub(comm::CommConfig{});
  OnThreads(kSize, [&](int rank) {
    Replica replica(&hub, rank, kSize);
    DataParallel dp(replica.group.get());
    if (rank == 1) replica.group->Abort("test");
    EXPECT_FALSE(dp.ReduceBucket(*replica.stream, *replica.store, 0).ok());
    const Status first = dp.status();
    kernels::EndOfStep v;
    EXPECT_EQ(dp.ReduceEndOfStep(*replica.stream, &v), first);
  });
}

TEST(DataParallelTest, AloneNothingIsExchanged) {
  comm::ThreadsHub hub(comm::CommConfig{});
  Replica replica(&hub, 0, 1);
  DataParallel dp(nullptr);
  replica.store->grads().Data<float>()[3] = 2.5F;
  EXPECT_TRUE(dp.ReduceBucket(*replica.stream, *replica.store, 0).ok());
  EXPECT_EQ(replica.store->grads().Data<float>()[3], 2.5F);
  EXPECT_EQ(dp.size(), 1);
}

}  // namespace
}  // namespace mt::parallel
