// Every operation of groups over NCCL's stand-in against ranks as threads: the same bits where sums
// are exact, equal bits on all ranks and in every rerun where they are not.
#include "worker/comm/nccl/nccl_group.h"

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "tests/worker/comm/nccl_harness.h"
#include "worker/comm/threads/hub.h"

namespace mt::comm {
namespace {

using kernels::DType;
using Bytes = std::vector<std::byte>;

constexpr std::array kAllTypes = {DType::kF32, DType::kF64, DType::kBf16, DType::kF16,
                                  DType::kI32, DType::kI64, DType::kU8};

struct NoEvent final : kernels::Stream {
  void Wait(kernels::Event& /*event*/) override {}
  void Synchronize() override {}
};

// An input and how its sums come out.
enum class Values { kWhole, kRandom };

void StoreFloat(DType dtype, double x, std::byte* to) {
  const auto f32 = static_cast<float>(x);
  const auto f16 = static_cast<_Float16>(x);
  const auto bf16 = static_cast<uint16_t>(std::bit_cast<uint32_t>(f32) >> 16);
  if (dtype == DType::kF32) std::memcpy(to, &f32, sizeof(f32));
  if (dtype == DType::kF64) std::memcpy(to, &x, sizeof(x));
  if (dtype == DType::kF16) std::memcpy(to, &f16, sizeof(f16));
  if (dtype == DType::kBf16) std::memcpy(to, &bf16, sizeof(bf16));
}

bool IsFloat(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kF16 ||
         dtype == DType::kBf16;
}

Bytes Input(DType dtype, int64_t count, int rank, Values values) {
  std::mt19937 generator(static_cast<uint32_t>(rank) + 7);
  const int64_t size = kernels::SizeOf(dtype);
  Bytes data(static_cast<size_t>(count * size));
  for (int64_t i = 0; i < count; ++i) {
    const auto drawn = static_cast<int32_t>(generator());
    std::byte* const to = data.data() + i * size;
    if (!IsFloat(dtype)) {
      const int64_t wide = drawn;
      std::memcpy(to, &wide, static_cast<size_t>(size));  // the low bytes
    } else {
      StoreFloat(dtype, values == Values::kWhole ? drawn % 11 : drawn / 1e7, to);
    }
  }
  return data;
}

// What a rank has after one call of each operation, in place and not.
Bytes ResultsOf(ProcessGroup& group, kernels::Stream& stream, DType dtype, int64_t count,
                Values values) {
  const Bytes in = Input(dtype, count * group.size(), group.rank(), values);
  const auto shard = count * kernels::SizeOf(dtype);
  const int64_t own = group.rank() * shard;
  std::array<Bytes, 9> out;
  for (Bytes& bytes : out) bytes = in;
  EXPECT_EQ(group.AllReduce(stream, in.data(), out[0].data(), count, dtype, ReduceOp::kSum),
            OkStatus());
  EXPECT_EQ(group.AllReduce(stream, out[1].data(), out[1].data(), count, dtype, ReduceOp::kSum),
            OkStatus());
  EXPECT_EQ(group.AllReduce(stream, in.data(), out[2].data(), count, dtype, ReduceOp::kMax),
            OkStatus());
  EXPECT_EQ(group.ReduceScatter(stream, in.data(), out[3].data(), count, dtype, ReduceOp::kSum),
            OkStatus());
  EXPECT_EQ(
      group.ReduceScatter(stream, out[4].data(), out[4].data() + own, count, dtype, ReduceOp::kSum),
      OkStatus());
  EXPECT_EQ(group.AllGather(stream, in.data(), out[5].data(), count, dtype), OkStatus());
  EXPECT_EQ(group.AllGather(stream, out[6].data() + own, out[6].data(), count, dtype), OkStatus());
  EXPECT_EQ(group.Broadcast(stream, out[7].data(), count, dtype, group.size() - 1), OkStatus());
  EXPECT_EQ(group.AllToAll(stream, in.data(), out[8].data(), count, dtype), OkStatus());
  stream.Synchronize();
  EXPECT_EQ(group.status(), OkStatus());
  Bytes all;
  for (const Bytes& bytes : out) all.insert(all.end(), bytes.begin(), bytes.end());
  return all;
}

// None, one, odd, and many pieces of a slot.
constexpr std::array<int64_t, 4> kCounts = {0, 1, 513, 20011};

std::vector<Bytes> OverThreads(int num_ranks, Values values) {
  ThreadsHub hub{{}};
  std::vector<int> members;
  for (int rank = 0; rank < num_ranks; ++rank) members.push_back(rank);
  std::vector<Bytes> results(members.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto group = hub.Create({.name = "same", .members = members, .my_index = rank});
      NoEvent stream;
      Bytes& mine = results[static_cast<size_t>(rank)];
      for (const DType dtype : kAllTypes) {
        for (const int64_t count : kCounts) {
          const Bytes bytes = ResultsOf(**group, stream, dtype, count, values);
          mine.insert(mine.end(), bytes.begin(), bytes.end());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

std::vector<Bytes> OverNccl(int num_ranks, Values values) {
  std::vector<Bytes> results(static_cast<size_t>(num_ranks));
  RunNccl("same", num_ranks, {}, [&](NcclRank& rank) {
    Bytes& mine = results[static_cast<size_t>(rank.group.rank())];
    for (const DType dtype : kAllTypes) {
      for (const int64_t count : kCounts) {
        const Bytes bytes = ResultsOf(rank.group, rank.stream, dtype, count, values);
        mine.insert(mine.end(), bytes.begin(), bytes.end());
      }
    }
  });
  return results;
}

TEST(NcclGroup, TwoRanksObtainTheBitsOfThreads) {
  EXPECT_TRUE(OverNccl(2, Values::kRandom) == OverThreads(2, Values::kRandom));
}

TEST(NcclGroup, MoreRanksObtainThemWhereSumsAreExact) {
  for (const int num_ranks : {3, 4}) {
    EXPECT_TRUE(OverNccl(num_ranks, Values::kWhole) == OverThreads(num_ranks, Values::kWhole))
        << num_ranks << " ranks";
  }
}

TEST(NcclGroup, ReplicasAndRerunsHaveEqualBits) {
  constexpr int64_t kCount = 20011;
  std::array<std::vector<Bytes>, 2> sums;
  for (std::vector<Bytes>& of_run : sums) {
    of_run.resize(3);
    RunNccl("replicas", 3, {}, [&](NcclRank& rank) {
      Bytes& sum = of_run[static_cast<size_t>(rank.group.rank())];
      sum = Input(DType::kF32, kCount, rank.group.rank(), Values::kRandom);
      EXPECT_EQ(rank.group.AllReduce(rank.stream, sum.data(), sum.data(), kCount, DType::kF32,
                                     ReduceOp::kSum),
                OkStatus());
      rank.stream.Synchronize();
    });
  }
  EXPECT_TRUE(sums[0][1] == sums[0][0] && sums[0][2] == sums[0][0]) << "replicas differ";
  EXPECT_TRUE(sums[1] == sums[0]) << "a rerun differs";
}

TEST(NcclGroup, ACallIsEnqueuedBehindWhatItsStreamHolds) {
  std::promise<void> open;
  const std::shared_future<void> gate = open.get_future().share();
  std::atomic<int> num_returned = 0;
  RunNccl("order", 2, {}, [&](NcclRank& rank) {
    std::vector<float> data(1000, -1);
    EnqueueOn(rank.stream, [&, gate] {
      gate.wait();
      std::fill(data.begin(), data.end(), 3.0F);
    });
    EXPECT_EQ(rank.group.AllReduce(rank.stream, data.data(), data.data(), 1000, DType::kF32,
                                   ReduceOp::kSum),
              OkStatus());
    const auto done = rank.device.CreateEvent();
    done->Record(rank.stream);
    EXPECT_FALSE(done->IsDone()) << "the call has not waited for its stream";
    if (++num_returned == 2) open.set_value();
    done->Synchronize();
    EXPECT_EQ(data, std::vector<float>(1000, 6));
  });
}

TEST(NcclGroup, CallsRunInTheOrderOfTheHostWhateverTheirStreams) {
  RunNccl("streams", 2, {}, [](NcclRank& rank) {
    const auto other = rank.device.CreateStream(kernels::StreamPriority::kLow);
    std::vector<int32_t> data(5000, 1);
    for (int i = 0; i < 10; ++i) {
      kernels::Stream& stream = i % 2 == rank.group.rank() ? rank.stream : *other;
      EXPECT_EQ(
          rank.group.AllReduce(stream, data.data(), data.data(), 5000, DType::kI32, ReduceOp::kSum),
          OkStatus());
    }
    rank.stream.Synchronize();
    other->Synchronize();
    EXPECT_EQ(data, std::vector<int32_t>(5000, 1024));
  });
}

TEST(NcclGroup, MessagesMeetTheirReceiver) {
  constexpr int64_t kLarge = 300007;
  RunNccl("mail", 3, {}, [&](NcclRank& rank) {
    ProcessGroup& group = rank.group;
    // Around the ring, the even ranks sending first, as rendezvous demands; and back.
    for (const int64_t count : {int64_t{1}, kLarge}) {
      for (const int hop : {1, 2}) {
        const int to = (group.rank() + hop) % 3;
        const int from = (group.rank() + 3 - hop) % 3;
        const Bytes out = Input(DType::kF32, count, group.rank(), Values::kRandom);
        Bytes in(out.size());
        const auto send = [&] {
          EXPECT_EQ(group.Send(rank.stream, out.data(), count, DType::kF32, to, 0), OkStatus());
        };
        if (group.rank() != 0) send();
        EXPECT_EQ(group.Recv(rank.stream, in.data(), count, DType::kF32, from, 0), OkStatus());
        if (group.rank() == 0) send();
        rank.stream.Synchronize();
        EXPECT_TRUE(in == Input(DType::kF32, count, from, Values::kRandom)) << count;
      }
    }
  });
}

TEST(NcclGroup, ASendWaitsForItsReceive) {
  std::promise<void> receive;
  RunNccl("rendezvous", 2, {}, [&](NcclRank& rank) {
    std::vector<float> data(8, static_cast<float>(rank.group.rank()));
    if (rank.group.rank() == 1) {
      EXPECT_EQ(rank.group.Recv(rank.stream, data.data(), 8, DType::kF32, 0, 0), OkStatus());
      receive.get_future().wait();
      EXPECT_EQ(rank.group.Recv(rank.stream, data.data(), 8, DType::kF32, 0, 0), OkStatus());
      rank.stream.Synchronize();
      EXPECT_EQ(data, std::vector<float>(8, 0));
      return;
    }
    EXPECT_EQ(rank.group.Send(rank.stream, data.data(), 8, DType::kF32, 1, 0), OkStatus());
    rank.stream.Synchronize();
    EXPECT_EQ(rank.group.Send(rank.stream, data.data(), 8, DType::kF32, 1, 0), OkStatus());
    const auto sent = rank.device.CreateEvent();
    sent->Record(rank.stream);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(sent->IsDone());
    receive.set_value();
    sent->Synchronize();
  });
}

TEST(NcclGroup, ABarrierWaitsForAll) {
  std::atomic<int> num_arrived = 0;
  RunNccl("barrier", 3, {}, [&](NcclRank& rank) {
    for (int round = 1; round <= 20; ++round) {
      ++num_arrived;
      ASSERT_EQ(rank.group.Barrier(rank.stream), OkStatus());
      EXPECT_GE(num_arrived, round * 3);
      ASSERT_EQ(rank.group.Barrier(rank.stream), OkStatus());
    }
  });
}

// Groups that work beside products leave the device to them.
TEST(NcclGroup, RolesHaveTheirThreadBlocks) {
  const std::string log = testing::TempDir() + "mt_nccl_blocks_" + base::RandomHex(8);
  const std::string undefined = std::to_string(NcclConfig::kUndefined);
  const auto blocks_of = [&](const std::string& name) {
    const WithKnobs knobs("log=" + log + "@0");
    RunNccl(name, 2, {}, [](NcclRank& /*rank*/) {});
    const std::string text = base::ReadFile(log).value();
    std::filesystem::remove(log);
    return text;
  };
  const std::map<std::string, std::string> most = {{"control/0", "1"},
                                                   {"tp-control/0", "4"},
                                                   {"tied/0", "4"},
                                                   {"dp-reduce/0", "8"},
                                                   {"dp-gather/0", "8"}};
  for (const auto& [name, blocks] : most)
    EXPECT_EQ(blocks_of(name), "rank 0 of 2, ctas 1 " + blocks + "\n") << name;
  for (const std::string name : {"tp/0", "pp-act/0-1", "pp-grad/1-0"})
    EXPECT_EQ(blocks_of(name), "rank 0 of 2, ctas " + undefined + " " + undefined + "\n") << name;
}

TEST(NcclGroup, WrongArgumentsAreRefusedAndTheGroupGoesOn) {
  RunNccl("arguments", 2, {}, [&](NcclRank& rank) {
    std::vector<float> x = {1};
    EXPECT_EQ(rank.group.Send(rank.stream, x.data(), 1, DType::kF32, 2, 0).code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(rank.group.AllReduce(rank.stream, x.data(), x.data(), -1, DType::kF32, ReduceOp::kSum)
                  .code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(rank.group.AllReduce(rank.stream, x.data(), x.data(), 1, DType::kF32, ReduceOp::kSum),
              OkStatus());
    rank.stream.Synchronize();
    EXPECT_EQ(x[0], 2);
  });
}

}  // namespace
}  // namespace mt::comm
