// The arithmetic of sums: order, rounding of 16-bit types, NaN, wrapping.
#include "worker/comm/reduce.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace mt::comm {
namespace {

using kernels::DType;

std::vector<const void*> Pointers(const auto&... inputs) { return {inputs.data()...}; }

TEST(Reduce, AddsFromTheOwnersRightNeighbourToTheOwner) {
  // 1e20 swallows 1: which of them meets -1e20 first decides the result.
  const std::vector<double> a{1e20};
  const std::vector<double> b{1};
  const std::vector<double> c{-1e20};
  double out = 0;
  const ReduceType sum{.dtype = DType::kF64, .op = ReduceOp::kSum};
  ReduceInOrder(Pointers(a, b, c), 0, &out, 1, sum);  // (b + c) + a
  EXPECT_EQ(out, (1 + -1e20) + 1e20);
  EXPECT_EQ(out, 0);
  ReduceInOrder(Pointers(a, b, c), 1, &out, 1, sum);  // (c + a) + b
  EXPECT_EQ(out, 1);
}

TEST(Reduce, MayWriteOverAnyInput) {
  std::vector<float> a(5000, 1);
  std::vector<float> b(5000, 2);
  ReduceAllShards(Pointers(a, b), b.data(), 5000, {.dtype = DType::kF32, .op = ReduceOp::kSum});
  EXPECT_EQ(b, std::vector<float>(5000, 3));
}

TEST(Reduce, IntegersWrap) {
  const std::vector<int32_t> a{std::numeric_limits<int32_t>::max()};
  const std::vector<int32_t> b{1};
  int32_t out = 0;
  ReduceInOrder(Pointers(a, b), 0, &out, 1, {.dtype = DType::kI32, .op = ReduceOp::kSum});
  EXPECT_EQ(out, std::numeric_limits<int32_t>::min());
}

TEST(Reduce, MaxKeepsNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [x, y] : {std::pair{nan, 1.0F}, std::pair{1.0F, nan}}) {
    float out = 0;
    ReduceInOrder(std::vector<const void*>{&x, &y}, 0, &out, 1,
                  {.dtype = DType::kF32, .op = ReduceOp::kMax});
    EXPECT_TRUE(std::isnan(out));
  }
}

TEST(Reduce, EveryHalfSurvivesTheRoundTrip) {
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const std::vector<uint16_t> in{static_cast<uint16_t>(bits)};
      uint16_t out = 0;
      ReduceInOrder(Pointers(in), 0, &out, 1, {.dtype = dtype, .op = ReduceOp::kSum});
      const uint32_t infinity = dtype == DType::kF16 ? 0x7C00 : 0x7F80;
      if ((bits & 0x7FFF) > infinity) {
        EXPECT_GT(out & 0x7FFFU, infinity) << "NaN " << bits;
      } else {
        EXPECT_EQ(out, bits) << kernels::Name(dtype);
      }
    }
  }
}

TEST(Reduce, F16SumsRoundAsTheCompilerDoes) {
  std::mt19937 generator(1);
  for (int trial = 0; trial < 200000; ++trial) {
    const std::vector<uint16_t> a{static_cast<uint16_t>(generator())};
    const std::vector<uint16_t> b{static_cast<uint16_t>(generator())};
    const std::vector<uint16_t> c{static_cast<uint16_t>(generator())};
    uint16_t out = 0;
    ReduceInOrder(Pointers(a, b, c), 2, &out, 1, {.dtype = DType::kF16, .op = ReduceOp::kSum});
    const auto widen = [](uint16_t bits) {
      return static_cast<float>(std::bit_cast<_Float16>(bits));
    };
    const float exact = widen(a[0]) + widen(b[0]) + widen(c[0]);
    if (std::isnan(exact)) {
      EXPECT_TRUE(std::isnan(widen(out)));
    } else {
      EXPECT_EQ(out, std::bit_cast<uint16_t>(static_cast<_Float16>(exact))) << exact;
    }
  }
}

TEST(Reduce, Bf16SumsRoundToNearestEven) {
  // 256 + 1 lies between 256 and 258 (8 bits of precision): even wins. Three terms are rounded
  // once: 256 + 1 + 1 = 258, where rounding each hop would give 256.
  const std::vector<uint16_t> big{0x4380};
  const std::vector<uint16_t> one{0x3F80};
  uint16_t out = 0;
  const ReduceType sum{.dtype = DType::kBf16, .op = ReduceOp::kSum};
  ReduceInOrder(Pointers(big, one), 0, &out, 1, sum);
  EXPECT_EQ(out, 0x4380);
  ReduceInOrder(Pointers(big, one, one), 0, &out, 1, sum);
  EXPECT_EQ(out, 0x4381);
}

TEST(ShardCut, CoversEveryElementOnce) {
  for (int64_t count = 0; count < 40; ++count) {
    for (int num_shards = 1; num_shards < 7; ++num_shards) {
      const ShardCut cut{.count = count, .num_shards = num_shards};
      int64_t next = 0;
      for (int shard = 0; shard < num_shards; ++shard) {
        EXPECT_EQ(cut.Begin(shard), next);
        EXPECT_LE(cut.CountOf(shard), cut.Size());
        next += cut.CountOf(shard);
      }
      EXPECT_EQ(next, count);
    }
  }
}

}  // namespace
}  // namespace mt::comm
