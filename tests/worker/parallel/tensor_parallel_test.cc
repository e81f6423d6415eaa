// Gather and Reduce over threads, with and without sequence parallelism, and the sticky error.
#include "worker/parallel/tensor_parallel.h"

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "worker/comm/threads/hub.h"
#include "worker/parallel/comm_spans.h"

namespace mt::parallel {
namespace {

using kernels::DType;
using kernels::Tensor;

constexpr int kSize = 3;
constexpr int64_t kRows = 2, kColumns = 5;  // of one rank's part
constexpr int64_t kPart = kRows * kColumns;

struct Rank {
  int rank = 0;
  kernels::Device* device = nullptr;
  kernels::Stream* stream = nullptr;
  comm::ProcessGroup* group = nullptr;
};

void OnRanks(const std::function<void(const Rank&)>& body) {
  comm::ThreadsHub hub(comm::CommConfig{});
  std::vector<std::thread> threads;
  for (int r = 0; r < kSize; ++r) {
    threads.emplace_back([&hub, &body, r] {
      const auto backend = kernels::cpu::MakeCpuBackend({}).value();
      const auto stream = backend->device().CreateStream(kernels::StreamPriority::kLow);
      const auto group = hub.Create({.name = "tp", .members = {0, 1, 2}, .my_index = r}).value();
      body({.rank = r, .device = &backend->device(), .stream = stream.get(), .group = group.get()});
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Tensor View(std::vector<double>* values) {
  const auto n = static_cast<int64_t>(values->size());
  return {values->data(), DType::kF64, {n / kColumns, kColumns}};
}

// A sum that was formed: groups of host memory leave no terms.
Tensor SumOf(const kernels::Partials& sum) {
  EXPECT_EQ(sum.count, 1);
  return sum.tensor[0];
}

// Element i of rank r.
double Value(int rank, int64_t i) { return 100.0 * rank + static_cast<double>(i); }

std::vector<double> Values(int rank, int64_t count) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(Value(rank, i));
  return values;
}

TEST(TensorParallelTest, CutRowsAreGatheredAndSumsScattered) {
  OnRanks([](const Rank& at) {
    TensorParallel tensor(at.group, /*sequence_parallel=*/true);
    std::vector<double> part = Values(at.rank, kPart), whole(kSize * kPart);
    const Tensor gathered = tensor.Gather(*at.stream, View(&part), View(&whole));
    EXPECT_EQ(gathered.data, whole.data());
    for (int64_t i = 0; i < kSize * kPart; ++i) {
      EXPECT_EQ(whole[static_cast<size_t>(i)], Value(static_cast<int>(i / kPart), i % kPart));
    }
    whole = Values(at.rank, kSize * kPart);
    const Tensor own = View(&whole).Rows(at.rank * kRows, kRows);
    const Tensor reduced = SumOf(tensor.Reduce(*at.stream, View(&whole), own));
    EXPECT_EQ(reduced.data, own.data);
    for (int64_t i = 0; i < kPart; ++i) {
      EXPECT_EQ(reduced.Data<double>()[i],
                100.0 * (0 + 1 + 2) + kSize * static_cast<double>(at.rank * kPart + i));
    }
    EXPECT_TRUE(tensor.status().ok()) << tensor.status();
  });
}

// At once, or on a lane of the device.
TEST(TensorParallelTest, BegunCallsMayBeFinishedInAnyOrder) {
  OnRanks([](const Rank& at) {
    for (const bool beside : {false, true}) {
      TensorParallel tensor(at.group, /*sequence_parallel=*/true);
      if (beside) tensor.RunBeside(at.device);
      std::vector<double> part = Values(at.rank, kPart), all(kSize * kPart), sums(kSize * kPart);
      std::vector<double> whole = Values(at.rank, kSize * kPart);
      const TensorParallel::Pending gather =
          tensor.StartGather(*at.stream, View(&part), View(&all));
      const TensorParallel::Pending reduce =
          tensor.StartReduce(*at.stream, View(&whole), View(&whole).Rows(at.rank * kRows, kRows));
      const Tensor sum = SumOf(tensor.FinishSum(*at.stream, reduce));
      const TensorParallel::Pending gather_sums = tensor.StartGather(*at.stream, sum, View(&sums));
      EXPECT_EQ(tensor.Finish(*at.stream, gather_sums).data, sums.data());
      EXPECT_EQ(tensor.Finish(*at.stream, gather).data, all.data());
      for (int64_t i = 0; i < kSize * kPart; ++i) {
        const auto at_i = static_cast<size_t>(i);
        EXPECT_EQ(all[at_i], Value(static_cast<int>(i / kPart), i % kPart));
        EXPECT_EQ(sums[at_i], 300.0 + kSize * static_cast<double>(i));
      }
      EXPECT_TRUE(tensor.status().ok()) << tensor.status();
    }
  });
}

// What room a trace makes for them before it times any.
TEST(TensorParallelTest, ABegunCallTakesTwoSpansItsOwnAndItsWaits) {
  OnRanks([](const Rank& at) {
    for (const bool beside : {false, true}) {
      CommSpans spans;
      TensorParallel tensor(at.group, /*sequence_parallel=*/true);
      tensor.TimeWith(&spans);
      if (beside) tensor.RunBeside(at.device);
      std::vector<double> part = Values(at.rank, kPart), all(kSize * kPart);
      spans.BeginStep(1);
      tensor.Finish(*at.stream, tensor.StartGather(*at.stream, View(&part), View(&all)));
      spans.BeginStep(2);
      EXPECT_EQ(spans.calls_of_a_step(), beside ? 2 : 1);
    }
  });
}

TEST(TensorParallelTest, WhatNeedsNoCallIsFinishedAtOnce) {
  OnRanks([](const Rank& at) {
    TensorParallel tensor(at.group, /*sequence_parallel=*/false);
    tensor.RunBeside(at.device);
    std::vector<double> part = Values(7, kPart), unused;
    const TensorParallel::Pending gather =
        tensor.StartGather(*at.stream, View(&part), View(&unused));
    EXPECT_EQ(gather.ticket, 0);
    EXPECT_EQ(tensor.Finish(*at.stream, gather).data, part.data());
  });
}

TEST(TensorParallelTest, WholeRowsPassThroughAndAreSummed) {
  OnRanks([](const Rank& at) {
    TensorParallel tensor(at.group, /*sequence_parallel=*/false);
    std::vector<double> part = Values(7, kPart), unused;
    EXPECT_EQ(tensor.Gather(*at.stream, View(&part), View(&unused)).data, part.data());
    EXPECT_EQ(part, Values(7, kPart));
    std::vector<double> whole = Values(at.rank, kPart);
    EXPECT_EQ(SumOf(tensor.Reduce(*at.stream, View(&whole), {})).data, whole.data());
    for (int64_t i = 0; i < kPart; ++i) {
      EXPECT_EQ(whole[static_cast<size_t>(i)], 300.0 + kSize * static_cast<double>(i));
    }
  });
}

TEST(TensorParallelTest, StatisticsAreGatheredInRankOrderAndInPlace) {
  OnRanks([](const Rank& at) {
    TensorParallel tensor(at.group, false);
    std::vector<int> calls;
    tensor.SetOnCollective([&](bool begin) { calls.push_back(begin ? 1 : 0); });
    std::vector<double> all(kSize * kPart);
    const Tensor own = View(&all).Rows(at.rank * kRows, kRows);
    for (int64_t i = 0; i < kPart; ++i) own.Data<double>()[i] = Value(at.rank, i);
    tensor.AllGather(*at.stream, own, View(&all));
    for (int64_t i = 0; i < kSize * kPart; ++i) {
      EXPECT_EQ(all[static_cast<size_t>(i)], Value(static_cast<int>(i / kPart), i % kPart));
    }
    EXPECT_EQ(calls, (std::vector<int>{1, 0}));
  });
}

TEST(TensorParallelTest, AloneNothingIsCopied) {
  const auto backend = kernels::cpu::MakeCpuBackend({}).value();
  const auto stream = backend->device().CreateStream(kernels::StreamPriority::kLow);
  TensorParallel tensor;
  EXPECT_EQ(tensor.size(), 1);
  std::vector<double> part = Values(1, kPart), unused;
  EXPECT_EQ(tensor.Gather(*stream, View(&part), View(&unused)).data, part.data());
  EXPECT_EQ(SumOf(tensor.Reduce(*stream, View(&part), {})).data, part.data());
  tensor.AllGather(*stream, View(&part), View(&part));
  EXPECT_EQ(part, Values(1, kPart));
}

TEST(TensorParallelTest, TheFirstErrorSticks) {
  OnRanks([](const Rank& at) {
    TensorParallel tensor(at.group, true);
    std::vector<double> part = Values(at.rank, kPart), whole(kSize * kPart, -1.0);
    if (at.rank == 1) at.group->Abort("stop");
    tensor.Gather(*at.stream, View(&part), View(&whole));
    const Status first = tensor.status();
    EXPECT_EQ(first.code(),
              at.rank == 1 ? absl::StatusCode::kAborted : absl::StatusCode::kUnavailable)
        << first;
    std::vector<int> calls;
    tensor.SetOnCollective([&](bool) { calls.push_back(1); });
    tensor.Reduce(*at.stream, View(&whole), View(&whole).Rows(0, kRows));
    EXPECT_TRUE(calls.empty());
    EXPECT_EQ(tensor.status(), first);
  });
}

}  // namespace
}  // namespace mt::parallel
