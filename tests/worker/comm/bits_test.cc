// Bit-equality of sums: all ranks, reruns, message paths and implementations give the bits of
// reduce.h's order.
#include <array>
#include <bit>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sanitized.h"
#include "tests/worker/comm/group_harness.h"
#include "worker/comm/process_group.h"
#include "worker/comm/reduce.h"
#include "worker/comm/shm/layout.h"

namespace mt::comm {
namespace {

using kernels::DType;
using Bytes = std::vector<std::byte>;

struct BitsCase {
  Kind kind;
  int num_ranks;
};

class BitsTest : public testing::TestWithParam<BitsCase> {
 protected:
  int num_ranks() const { return GetParam().num_ranks; }
};

// Values whose sums depend on the order in every type.
Bytes RandomInput(DType dtype, int64_t count, int rank) {
  std::mt19937 generator(static_cast<uint32_t>(rank) + 100);
  Bytes data(static_cast<size_t>(count * kernels::SizeOf(dtype)));
  for (int64_t i = 0; i < count; ++i) {
    const double x = static_cast<int32_t>(generator()) / 1e7;
    std::byte* to = data.data() + i * kernels::SizeOf(dtype);
    if (dtype == DType::kF32) {
      const auto v = static_cast<float>(x);
      std::memcpy(to, &v, sizeof(v));
    } else if (dtype == DType::kF16) {
      const auto v = static_cast<_Float16>(x);
      std::memcpy(to, &v, sizeof(v));
    } else if (dtype == DType::kBf16) {
      const auto v = static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(x)) >> 16);
      std::memcpy(to, &v, sizeof(v));
    } else {
      std::memcpy(to, &x, static_cast<size_t>(kernels::SizeOf(dtype)));
    }
  }
  return data;
}

TEST_P(BitsTest, AreThoseOfTheDocumentedOrder) {
  // Sizes on both sides of the border between the small and the bulk path.
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16}) {
    for (const int64_t count : {int64_t{8}, int64_t{2051}, int64_t{700003}}) {
      std::vector<Bytes> inputs;
      std::vector<const void*> pointers;
      for (int rank = 0; rank < num_ranks(); ++rank) {
        inputs.push_back(RandomInput(dtype, count, rank));
      }
      for (const Bytes& input : inputs) pointers.push_back(input.data());
      Bytes expected(inputs[0].size());
      ReduceAllShards(pointers, expected.data(), count, {.dtype = dtype, .op = ReduceOp::kSum});
      for (int rerun = 0; rerun < 2; ++rerun) {
        Ranks ranks(GetParam().kind, num_ranks());
        ranks.Run("bits", [&](ProcessGroup& group) {
          InlineStream stream;
          Bytes out(expected.size());
          ASSERT_EQ(group.AllReduce(stream, inputs[static_cast<size_t>(group.rank())].data(),
                                    out.data(), count, dtype, ReduceOp::kSum),
                    OkStatus());
          EXPECT_TRUE(out == expected)
              << count << " " << kernels::Name(dtype) << ", rank " << group.rank();
        });
      }
    }
  }
}

// Everything that a rank gets from one call of every operation.
using AllResults = std::array<Bytes, 6>;
AllResults ResultsOf(ProcessGroup& group, DType dtype, int64_t count) {
  InlineStream stream;
  const Bytes in = RandomInput(dtype, count * group.size(), group.rank());
  const auto part = static_cast<size_t>(count * kernels::SizeOf(dtype));
  AllResults out;
  for (Bytes& bytes : out) bytes.resize(in.size());
  out[4].assign(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(part));
  EXPECT_EQ(group.AllReduce(stream, in.data(), out[0].data(), count, dtype, ReduceOp::kSum),
            OkStatus());
  EXPECT_EQ(group.AllReduce(stream, in.data(), out[1].data(), count, dtype, ReduceOp::kMax),
            OkStatus());
  EXPECT_EQ(group.ReduceScatter(stream, in.data(), out[2].data(), count, dtype, ReduceOp::kSum),
            OkStatus());
  EXPECT_EQ(group.AllGather(stream, in.data(), out[3].data(), count, dtype), OkStatus());
  EXPECT_EQ(group.Broadcast(stream, out[4].data(), count, dtype, group.size() - 1), OkStatus());
  EXPECT_EQ(group.AllToAll(stream, in.data(), out[5].data(), count, dtype), OkStatus());
  return out;
}

TEST(Bits, AreThoseOfTcpOverSharedMemory) {
  // Under sanitizers, where this takes minutes, of one size that is no power of two.
  for (const int num_ranks : kSanitized ? std::vector{3} : std::vector{2, 3, 5}) {
    struct Shape {
      DType dtype;
      int64_t count;
    };
    std::vector<Shape> shapes;
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      // Where a piece ends, and where members stop to add all terms by themselves.
      const int64_t piece = kInputBytes / num_ranks / 64 * 64 / kernels::SizeOf(dtype);
      const int64_t small = kInputBytes / (num_ranks - 1) / kernels::SizeOf(dtype);
      for (const int64_t count : {int64_t{3}, piece - 1, piece, piece + 1, 2 * piece + 3, small - 1,
                                  small, small + 1, 2 * num_ranks * piece + 5}) {
        shapes.push_back({dtype, count});
      }
    }
    for (const DType dtype : {DType::kF64, DType::kF16, DType::kI32, DType::kI64, DType::kU8}) {
      shapes.push_back({dtype, kInputBytes / num_ranks});
    }
    std::vector<std::vector<AllResults>> over_tcp(
        static_cast<size_t>(num_ranks));  // by rank and shape
    for (const Kind kind : {Kind::kGloo, Kind::kShm}) {
      Ranks ranks(kind, num_ranks);
      ranks.Run("same", [&](ProcessGroup& group) {
        std::vector<AllResults>& mine = over_tcp[static_cast<size_t>(group.rank())];
        for (size_t i = 0; i < shapes.size(); ++i) {
          AllResults results = ResultsOf(group, shapes[i].dtype, shapes[i].count);
          if (kind == Kind::kGloo) {
            mine.push_back(std::move(results));
          } else {
            EXPECT_TRUE(results == mine[i])
                << shapes[i].count << " " << kernels::Name(shapes[i].dtype) << ", rank "
                << group.rank() << " of " << num_ranks;
          }
        }
      });
    }
  }
}

std::vector<BitsCase> AllBitsCases() {
  std::vector<BitsCase> cases;
  for (const Kind kind : {Kind::kThreads, Kind::kGloo, Kind::kShm}) {
    for (const int num_ranks : {2, 3, 4}) cases.push_back({kind, num_ranks});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Implementations, BitsTest, testing::ValuesIn(AllBitsCases()),
                         [](const auto& param) {
                           return fmt::format("{}_{}", Name(param.param.kind),
                                              param.param.num_ranks);
                         });

}  // namespace
}  // namespace mt::comm
