// The race of two groups of the same ranks, over threads: what is raced, that all ranks obtain the
// same routes and memory stays as it was, and which route other sizes take.
#include "worker/parallel/tensor_routes.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "worker/comm/threads/hub.h"

namespace mt::parallel {
namespace {

using comm::CommOp;
using kernels::DType;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kActivations = int64_t{64} << 10;

struct RoutesRank {
  int rank = 0;
  kernels::Device* device = nullptr;
  const memory::Memory* memory = nullptr;
  comm::ProcessGroup* group = nullptr;
  comm::ProcessGroup* copies = nullptr;
};

void OnRoutesRanks(int size, const std::function<void(const RoutesRank&)>& body) {
  comm::ThreadsHub hub(comm::CommConfig{});
  std::vector<int> members(static_cast<size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  std::vector<std::thread> threads;
  threads.reserve(members.size());
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      const auto backend = kernels::cpu::MakeCpuBackend({.num_threads = 1}).value();
      memory::MemoryPlan plan;
      plan.Reserve(memory::Kind::kActivations, kActivations);
      const auto memory =
          memory::Memory::Allocate(backend->device(), plan, int64_t{1} << 30).value();
      const auto group = hub.Create({.name = "tp/0", .members = members, .my_index = r}).value();
      const auto copies =
          hub.Create({.name = "tp-copies/0", .members = members, .my_index = r}).value();
      body({.rank = r,
            .device = &backend->device(),
            .memory = memory.get(),
            .group = group.get(),
            .copies = copies.get()});
    });
  }
  for (std::thread& thread : threads) thread.join();
}

const std::vector<TensorRoutes::Call>& RoutesCalls() {
  static const std::vector<TensorRoutes::Call> calls = {
      {.op = CommOp::kAllGather, .count = 100, .dtype = DType::kF32},
      {.op = CommOp::kAllGather, .count = 1000, .dtype = DType::kBf16},
      {.op = CommOp::kReduceScatter, .count = 1000, .dtype = DType::kF32},
      {.op = CommOp::kAllReduce, .count = 500, .dtype = DType::kF64},
      {.op = CommOp::kAllReduce, .count = kActivations, .dtype = DType::kF32},  // too large
  };
  return calls;
}

TEST(TensorRoutesTest, AllRanksTakeTheRoutesOfTheRace) {
  std::vector<std::string> texts(2);
  OnRoutesRanks(2, [&](const RoutesRank& at) {
    TensorRoutes routes(at.group, at.copies);
    EXPECT_EQ(routes.Of(CommOp::kAllGather, 800), at.copies) << "before the race";
    const Status raced = routes.Race(at.device, RoutesCalls(), *at.memory);
    EXPECT_TRUE(raced.ok()) << raced;
    ASSERT_EQ(routes.choices().size(), 4U);
    const auto way = [&](size_t i) { return routes.choices()[i].copies ? at.copies : at.group; };
    // Of two shards each; what lies between two goes as the larger.
    EXPECT_EQ(routes.choices()[0].bytes, 800);
    EXPECT_EQ(routes.choices()[1].bytes, 4000);
    EXPECT_EQ(routes.Of(CommOp::kAllGather, 1), way(0));
    EXPECT_EQ(routes.Of(CommOp::kAllGather, 800), way(0));
    EXPECT_EQ(routes.Of(CommOp::kAllGather, 801), way(1));
    EXPECT_EQ(routes.Of(CommOp::kAllGather, 4000), way(1));
    EXPECT_EQ(routes.Of(CommOp::kAllGather, 1 << 20), way(1));
    EXPECT_EQ(routes.Of(CommOp::kReduceScatter, 8000), way(2));
    EXPECT_EQ(routes.Of(CommOp::kAllReduce, 4000), way(3));
    EXPECT_EQ(routes.IsByCopies(CommOp::kAllReduce, 4000), routes.choices()[3].copies);
    for (const TensorRoutes::Choice& choice : routes.choices()) {
      EXPECT_GT(choice.group_us, 0);
      EXPECT_GT(choice.copies_us, 0);
      EXPECT_EQ(choice.copies, choice.copies_us <= 1.1 * choice.group_us);
    }
    texts[static_cast<size_t>(at.rank)] = routes.ToText();
    const auto* const data = static_cast<const std::byte*>(
        at.memory->Data(at.memory->Whole(memory::Kind::kActivations)));
    EXPECT_TRUE(
        std::all_of(data, data + kActivations, [](std::byte b) { return b == std::byte{}; }));
    routes.LeaveCopies();
    EXPECT_FALSE(routes.has_copies());
    EXPECT_EQ(routes.Of(CommOp::kAllGather, 800), at.group);
    EXPECT_FALSE(routes.IsByCopies(CommOp::kAllGather, 800));
  });
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_THAT(texts[0], HasSubstr("all_gather of 800 bytes: "));
}

// Whose bits would depend on the race.
TEST(TensorRoutesTest, SumsOfThreeAreNotRaced) {
  OnRoutesRanks(3, [](const RoutesRank& at) {
    TensorRoutes routes(at.group, at.copies);
    const Status raced = routes.Race(at.device, RoutesCalls(), *at.memory);
    EXPECT_TRUE(raced.ok()) << raced;
    ASSERT_EQ(routes.choices().size(), 2U);
    EXPECT_EQ(routes.choices()[1].call.op, CommOp::kAllGather);
    EXPECT_EQ(routes.Of(CommOp::kReduceScatter, 8000), at.copies);
    EXPECT_EQ(routes.Of(CommOp::kAllReduce, 8000), at.copies);
  });
}

TEST(TensorRoutesTest, WithoutCopiesThereIsNoRace) {
  OnRoutesRanks(2, [](const RoutesRank& at) {
    TensorRoutes routes(at.group, nullptr);
    EXPECT_TRUE(routes.Race(at.device, RoutesCalls(), *at.memory).ok());
    EXPECT_THAT(routes.choices(), IsEmpty());
    EXPECT_EQ(routes.ToText(), "");
    EXPECT_EQ(routes.Of(CommOp::kAllGather, 800), at.group);
    EXPECT_EQ(at.group->Stats().of(CommOp::kAllGather).num_calls, 0);
  });
}

TEST(TensorRoutesTest, ABrokenGroupEndsTheRace) {
  OnRoutesRanks(2, [](const RoutesRank& at) {
    TensorRoutes routes(at.group, at.copies);
    if (at.rank == 1) at.copies->Abort("lost");
    EXPECT_FALSE(routes.Race(at.device, RoutesCalls(), *at.memory).ok());
    at.group->Abort("told of it");
  });
}

}  // namespace
}  // namespace mt::parallel
