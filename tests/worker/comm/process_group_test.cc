// Every operation of every implementation against a naive result, in every type and size. The bits
// of sums are tested by bits_test.cc.
#include "worker/comm/process_group.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/comm/group_harness.h"

namespace mt::comm {
namespace {

using kernels::DType;
using Bytes = std::vector<std::byte>;

constexpr std::array kAllTypes = {DType::kF32, DType::kF64, DType::kBf16, DType::kF16,
                                  DType::kI32, DType::kI64, DType::kU8};
// None, one, odd, just inside and outside of one opening, many segments in uneven shards.
constexpr std::array<int64_t, 6> kCounts = {0, 1, 7, 513, 5003, 1300007};

// A small whole number as an element of the type: sums of four are exact in every one.
void Store(DType dtype, int value, std::byte* to) {
  switch (dtype) {
    case DType::kF32: {
      const auto v = static_cast<float>(value);
      std::memcpy(to, &v, sizeof(v));
      break;
    }
    case DType::kF64: {
      const auto v = static_cast<double>(value);
      std::memcpy(to, &v, sizeof(v));
      break;
    }
    case DType::kBf16: {
      const auto v =
          static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16);
      std::memcpy(to, &v, sizeof(v));
      break;
    }
    case DType::kF16: {
      const auto v = static_cast<_Float16>(value);
      std::memcpy(to, &v, sizeof(v));
      break;
    }
    case DType::kI32: {
      std::memcpy(to, &value, sizeof(value));
      break;
    }
    case DType::kI64: {
      const int64_t v = value;
      std::memcpy(to, &v, sizeof(v));
      break;
    }
    case DType::kU8: {
      *to = static_cast<std::byte>(value);
      break;
    }
  }
}

int Value(int rank, int64_t i) { return static_cast<int>((i * 7 + rank * 3 + i / 1000) % 13); }

template <class Fn>
Bytes Make(DType dtype, int64_t count, Fn value_of) {
  const int64_t size = kernels::SizeOf(dtype);
  Bytes data(static_cast<size_t>(count * size));
  for (int64_t i = 0; i < count; ++i) Store(dtype, value_of(i), data.data() + i * size);
  return data;
}

Bytes Input(DType dtype, int64_t count, int rank) {
  return Make(dtype, count, [&](int64_t i) { return Value(rank, i); });
}

int Reduced(int num_ranks, int64_t i, ReduceOp op) {
  int total = Value(0, i);
  for (int rank = 1; rank < num_ranks; ++rank) {
    total = op == ReduceOp::kSum ? total + Value(rank, i) : std::max(total, Value(rank, i));
  }
  return total;
}

struct Case {
  Kind kind;
  int num_ranks;
};

class ProcessGroupTest : public testing::TestWithParam<Case> {
 protected:
  int num_ranks() const { return GetParam().num_ranks; }

  // body(group, stream, dtype, count), all ranks in step, for all types and counts.
  template <class Body>
  void ForAllTypesAndCounts(Body body) {
    Ranks ranks(GetParam().kind, num_ranks());
    ranks.Run("all", [&](ProcessGroup& group) {
      InlineStream stream;
      for (const DType dtype : kAllTypes) {
        for (const int64_t count : kCounts) {
          // The largest: one type that rings and one that does not.
          if (count > 10000 && dtype != DType::kF32 && dtype != DType::kBf16) continue;
          SCOPED_TRACE(fmt::format("{} {}, rank {}", count, kernels::Name(dtype), group.rank()));
          body(group, stream, dtype, count);
          if (testing::Test::HasFailure()) return;
        }
      }
    });
  }
};

TEST_P(ProcessGroupTest, KnowsItself) {
  Ranks ranks(GetParam().kind, num_ranks());
  ranks.Run("who", [&](ProcessGroup& group) {
    EXPECT_EQ(group.size(), num_ranks());
    EXPECT_EQ(group.name(), "who");
    EXPECT_EQ(group.WorldRank(group.rank()), group.rank() + 10);
    EXPECT_TRUE(group.status().ok());
  });
}

TEST_P(ProcessGroupTest, AllReduce) {
  ForAllTypesAndCounts([&](ProcessGroup& group, InlineStream& stream, DType dtype, int64_t count) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
      const Bytes expected =
          Make(dtype, count, [&](int64_t i) { return Reduced(group.size(), i, op); });
      const Bytes in = Input(dtype, count, group.rank());
      Bytes out(in.size());
      ASSERT_EQ(group.AllReduce(stream, in.data(), out.data(), count, dtype, op), OkStatus());
      EXPECT_TRUE(out == expected);
      EXPECT_TRUE(in == Input(dtype, count, group.rank())) << "the input changed";
      out = in;
      ASSERT_EQ(group.AllReduce(stream, out.data(), out.data(), count, dtype, op), OkStatus());
      EXPECT_TRUE(out == expected) << "in place";
    }
  });
}

TEST_P(ProcessGroupTest, ReduceScatter) {
  ForAllTypesAndCounts([&](ProcessGroup& group, InlineStream& stream, DType dtype, int64_t count) {
    const Bytes in = Input(dtype, count * group.size(), group.rank());
    const Bytes expected = Make(dtype, count, [&](int64_t i) {
      return Reduced(group.size(), group.rank() * count + i, ReduceOp::kSum);
    });
    Bytes out(expected.size());
    ASSERT_EQ(group.ReduceScatter(stream, in.data(), out.data(), count, dtype, ReduceOp::kSum),
              OkStatus());
    EXPECT_TRUE(out == expected);
    Bytes in_place = in;
    const size_t own = static_cast<size_t>(group.rank()) * expected.size();
    ASSERT_EQ(group.ReduceScatter(stream, in_place.data(), in_place.data() + own, count, dtype,
                                  ReduceOp::kSum),
              OkStatus());
    Bytes all_expected = in;
    std::copy(expected.begin(), expected.end(),
              all_expected.begin() + static_cast<std::ptrdiff_t>(own));
    EXPECT_TRUE(in_place == all_expected) << "in place: own shard reduced, the rest untouched";
  });
}

TEST_P(ProcessGroupTest, AllGather) {
  ForAllTypesAndCounts([&](ProcessGroup& group, InlineStream& stream, DType dtype, int64_t count) {
    Bytes expected;
    for (int rank = 0; rank < group.size(); ++rank) {
      const Bytes part = Input(dtype, count, rank);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    const Bytes in = Input(dtype, count, group.rank());
    Bytes out(expected.size());
    ASSERT_EQ(group.AllGather(stream, in.data(), out.data(), count, dtype), OkStatus());
    EXPECT_TRUE(out == expected);
    Bytes in_place(expected.size());
    const size_t own = static_cast<size_t>(group.rank()) * in.size();
    std::copy(in.begin(), in.end(), in_place.begin() + static_cast<std::ptrdiff_t>(own));
    ASSERT_EQ(group.AllGather(stream, in_place.data() + own, in_place.data(), count, dtype),
              OkStatus());
    EXPECT_TRUE(in_place == expected) << "in place";
  });
}

TEST_P(ProcessGroupTest, Broadcast) {
  ForAllTypesAndCounts([&](ProcessGroup& group, InlineStream& stream, DType dtype, int64_t count) {
    for (int root = 0; root < group.size(); ++root) {
      Bytes data = Input(dtype, count, group.rank());
      ASSERT_EQ(group.Broadcast(stream, data.data(), count, dtype, root), OkStatus());
      EXPECT_TRUE(data == Input(dtype, count, root)) << "from " << root;
    }
  });
}

TEST_P(ProcessGroupTest, AllToAll) {
  ForAllTypesAndCounts([&](ProcessGroup& group, InlineStream& stream, DType dtype, int64_t count) {
    const auto part_of = [&](int from, int to) {
      return Make(dtype, count, [&](int64_t i) { return Value(from + 4 * to, i); });
    };
    Bytes in;
    Bytes expected;
    for (int peer = 0; peer < group.size(); ++peer) {
      const Bytes out_part = part_of(group.rank(), peer);
      const Bytes in_part = part_of(peer, group.rank());
      in.insert(in.end(), out_part.begin(), out_part.end());
      expected.insert(expected.end(), in_part.begin(), in_part.end());
    }
    Bytes out(in.size());
    ASSERT_EQ(group.AllToAll(stream, in.data(), out.data(), count, dtype), OkStatus());
    EXPECT_TRUE(out == expected);
  });
}

TEST_P(ProcessGroupTest, MessagesKeepTheirOrderOnEachEdge) {
  if (num_ranks() == 1) return;  // a group of one has no edges
  // Every rank sends everything before it receives anything: two edges to every peer, in mixed
  // sizes, and the receiver takes the second edge first.
  constexpr int kMessages = 8;
  const auto count_of = [](int number) -> int64_t { return number * number * 6007; };
  const auto content = [&](int from, int edge, int number) {
    return Make(DType::kF32, count_of(number),
                [&](int64_t i) { return Value(from + 4 * edge + 8 * number, i); });
  };
  Ranks ranks(GetParam().kind, num_ranks());
  ranks.Run("mail", [&](ProcessGroup& group) {
    InlineStream stream;
    for (int hop = 1; hop < group.size(); ++hop) {
      const int to = (group.rank() + hop) % group.size();
      for (int number = 0; number < kMessages; ++number) {
        for (int edge = 0; edge < 2; ++edge) {
          const Bytes data = content(group.rank(), edge, number);
          ASSERT_EQ(group.Send(stream, data.data(), count_of(number), DType::kF32, to, edge),
                    OkStatus());
        }
      }
    }
    for (int hop = 1; hop < group.size(); ++hop) {
      const int from = (group.rank() + hop) % group.size();
      for (int edge = 1; edge >= 0; --edge) {
        for (int number = 0; number < kMessages; ++number) {
          Bytes data(static_cast<size_t>(count_of(number) * 4));
          ASSERT_EQ(group.Recv(stream, data.data(), count_of(number), DType::kF32, from, edge),
                    OkStatus());
          EXPECT_TRUE(data == content(from, edge, number)) << "message " << number;
        }
      }
    }
    ASSERT_EQ(group.Barrier(stream), OkStatus());
  });
}

TEST_P(ProcessGroupTest, SendWaitsOnlyWhenTheWindowIsFull) {
  if (num_ranks() == 1) return;
  constexpr int64_t kMany = 5 * ProcessGroup::kSendWindow;
  Ranks ranks(GetParam().kind, num_ranks());
  ranks.Run("window", [&](ProcessGroup& group) {
    InlineStream stream;
    for (int64_t i = 0; i < kMany && group.rank() < 2; ++i) {
      if (group.rank() == 0) {
        ASSERT_EQ(group.Send(stream, &i, 1, DType::kI64, 1, 3), OkStatus());
      } else {
        int64_t got = -1;
        ASSERT_EQ(group.Recv(stream, &got, 1, DType::kI64, 0, 3), OkStatus());
        EXPECT_EQ(got, i);
      }
    }
    ASSERT_EQ(group.Barrier(stream), OkStatus());
  });
}

TEST_P(ProcessGroupTest, BarrierWaitsForAll) {
  Ranks ranks(GetParam().kind, num_ranks());
  std::atomic<int> arrived = 0;
  ranks.Run("barrier", [&](ProcessGroup& group) {
    InlineStream stream;
    for (int round = 1; round <= 50; ++round) {
      ++arrived;
      ASSERT_EQ(group.Barrier(stream), OkStatus());
      EXPECT_GE(arrived, round * group.size());
      ASSERT_EQ(group.Barrier(stream), OkStatus());
    }
  });
  EXPECT_EQ(arrived, 50 * num_ranks());
}

TEST_P(ProcessGroupTest, CountsCallsAndBytes) {
  Ranks ranks(GetParam().kind, num_ranks());
  ranks.Run("stats", [&](ProcessGroup& group) {
    InlineStream stream;
    std::vector<float> in(100 * static_cast<size_t>(group.size()));
    std::vector<float> out(in.size());
    ASSERT_EQ(group.AllReduce(stream, in.data(), out.data(), 100, DType::kF32, ReduceOp::kSum),
              OkStatus());
    ASSERT_EQ(group.AllGather(stream, in.data(), out.data(), 100, DType::kF32), OkStatus());
    ASSERT_EQ(group.AllGather(stream, in.data(), out.data(), 50, DType::kF32), OkStatus());
    const CommStats stats = group.Stats();
    EXPECT_EQ(stats.of(CommOp::kAllReduce).num_calls, 1);
    EXPECT_EQ(stats.of(CommOp::kAllReduce).payload_bytes, 400);
    EXPECT_EQ(stats.of(CommOp::kAllGather).num_calls, 2);
    EXPECT_EQ(stats.of(CommOp::kAllGather).payload_bytes, 600 * group.size());
    EXPECT_GT(stats.of(CommOp::kAllGather).seconds, 0);
    EXPECT_EQ(stats.of(CommOp::kBarrier).num_calls, 0);
    EXPECT_EQ(stats.inflight_seconds, 0);
  });
}

TEST_P(ProcessGroupTest, RefusesWrongArgumentsAndGoesOn) {
  Ranks ranks(GetParam().kind, num_ranks());
  ranks.Run("arguments", [&](ProcessGroup& group) {
    InlineStream stream;
    float x = 1;
    const auto code = [](const Status& status) { return status.code(); };
    EXPECT_EQ(code(group.AllReduce(stream, &x, &x, -1, DType::kF32, ReduceOp::kSum)),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(code(group.Broadcast(stream, &x, 1, DType::kF32, group.size())),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(code(group.Send(stream, &x, 1, DType::kF32, group.rank(), 0)),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(code(group.Recv(stream, &x, 1, DType::kF32, -1, 0)),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(code(group.Send(stream, &x, 1, DType::kF32, 0, ProcessGroup::kMaxEdges)),
              absl::StatusCode::kInvalidArgument);
    ASSERT_EQ(group.AllReduce(stream, &x, &x, 1, DType::kF32, ReduceOp::kSum), OkStatus());
    EXPECT_EQ(x, static_cast<float>(group.size()));
  });
}

TEST_P(ProcessGroupTest, SeveralGroupsOfTheSameRanksAreIndependent) {
  if (num_ranks() == 1) return;
  Ranks ranks(GetParam().kind, num_ranks());
  ranks.Run("outer", [&](ProcessGroup& outer) {
    std::vector<int> reversed;
    for (int rank = outer.size() - 1; rank >= 0; --rank) reversed.push_back(rank + 10);
    auto inner = ranks.factory(outer.rank())
                     .Create({.name = "inner/reversed",
                              .members = reversed,
                              .my_index = outer.size() - 1 - outer.rank()});
    ASSERT_TRUE(inner.ok()) << inner.status();
    InlineStream stream;
    const auto mine = static_cast<int64_t>(outer.rank());
    std::vector<int64_t> all(static_cast<size_t>(outer.size()));
    ASSERT_EQ((*inner)->AllGather(stream, &mine, all.data(), 1, DType::kI64), OkStatus());
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i], static_cast<int64_t>(all.size() - 1 - i));
    }
    // A member that has its result says nothing of the others: an abort now would end their call.
    ASSERT_EQ(outer.Barrier(stream), OkStatus());
    (*inner)->Abort("not needed any more");
    ASSERT_EQ(outer.Barrier(stream), OkStatus());
  });
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const Kind kind : {Kind::kThreads, Kind::kGloo, Kind::kShm}) {
    for (const int num_ranks : {1, 2, 3, 4}) cases.push_back({kind, num_ranks});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Implementations, ProcessGroupTest, testing::ValuesIn(AllCases()),
                         [](const auto& param) {
                           return fmt::format("{}_{}", Name(param.param.kind),
                                              param.param.num_ranks);
                         });

}  // namespace
}  // namespace mt::comm
