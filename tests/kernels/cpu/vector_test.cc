// Elementwise ops, column sums, and conversions against a rounding done in fp64.
#include "kernels/ops/vector.h"

#include <bit>

#include "tests/kernels/cpu/op_test.h"

namespace mt::kernels::cpu {
namespace {

class VectorTest : public testing::TestWithParam<int> {
 protected:
  const VectorOps& Ops() { return Cpu(GetParam()).vector(); }
};

TEST_P(VectorTest, AddTo) {
  constexpr int64_t kN = 40001;
  Uniform random(51);
  Array<float> to = random.Make<float>({kN}), from = random.Make<float>({kN});
  const Array<float> before = to;
  Ops().AddTo(AnyStream(), to.tensor(), from.tensor());
  for (int64_t i = 0; i < kN; ++i) ASSERT_EQ(to[i], before[i] + from[i]);
  Array<int64_t> counts({3}, int64_t{1} << 40), more({3}, 2);
  Ops().AddTo(AnyStream(), counts.tensor(), more.tensor());
  EXPECT_EQ(counts[2], (int64_t{1} << 40) + 2);
}

TEST_P(VectorTest, SumPartialsAddsInIndexOrder) {
  constexpr int64_t kN = 40001;
  Uniform random(52);
  std::vector<Array<float>> parts;
  Partials partials;
  for (size_t i = 0; i < 5; ++i) parts.push_back(random.Make<float>({kN}));
  for (size_t i = 0; i < 5; ++i) partials.tensor[i] = parts[i].tensor();
  partials.count = 5;
  Array<float> out({kN});
  Ops().SumPartials(AnyStream(), out.tensor(), partials);
  for (int64_t i = 0; i < kN; ++i) {
    ASSERT_EQ(out[i], (((parts[0][i] + parts[1][i]) + parts[2][i]) + parts[3][i]) + parts[4][i]);
  }
  Ops().SumPartials(AnyStream(), parts[2].tensor(), partials);  // into one of them
  EXPECT_TRUE(parts[2] == out);
}

TEST_P(VectorTest, RowSumAddsRowsInRisingOrder) {
  constexpr int64_t kRows = 77, kColumns = 1037;
  Uniform random(53);
  Array<float> x = random.Make<float>({kRows, kColumns});
  Array<float> out({kColumns}, NAN), expected({kColumns});
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t c = 0; c < kColumns; ++c) expected[c] += x[row * kColumns + c];
  }
  Ops().RowSum(AnyStream(), x.tensor(), GradMode::kOverwrite, out.tensor());
  EXPECT_TRUE(out == expected);
  Ops().RowSum(AnyStream(), x.tensor(), GradMode::kAdd, out.tensor());
  for (int64_t c = 0; c < kColumns; ++c) ASSERT_EQ(out[c], 2 * expected[c]);
}

TEST_P(VectorTest, FillEveryType) {
  Array<double> f64({40001});
  Ops().Fill(AnyStream(), f64.tensor(), 0.1);
  EXPECT_EQ(f64[40000], 0.1);
  Array<float> f32({40001});
  Ops().Fill(AnyStream(), f32.tensor(), 0.1);
  EXPECT_EQ(f32[40000], 0.1F);
  Array<int32_t> i32({5});
  Ops().Fill(AnyStream(), i32.tensor(), -7);
  EXPECT_EQ(i32[4], -7);
  Array<uint8_t> bytes({2 * 5});
  Ops().Fill(AnyStream(), {bytes.data(), DType::kBf16, {5}}, 1.0);
  EXPECT_EQ(bytes[9], 0x3F);
  EXPECT_EQ(bytes[8], 0x80);
}

INSTANTIATE_TEST_SUITE_P(Threads, VectorTest, testing::Values(1, 3));

// A 16-bit format by its number of stored fraction bits and its smallest normal exponent.
struct Format {
  DType dtype;
  int fraction_bits, min_exponent, max_exponent;
};
constexpr Format kBf16{DType::kBf16, 7, -126, 127}, kF16{DType::kF16, 10, -14, 15};

// x rounded to the format, to nearest even, done in fp64.
float Rounded(const Format& f, float x) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), f.min_exponent);
  const double unit = std::ldexp(1.0, exponent - f.fraction_bits);
  const double rounded = std::nearbyint(double{x} / unit) * unit;
  const double limit = std::ldexp(2 - std::ldexp(1.0, -f.fraction_bits), f.max_exponent);
  if (std::abs(rounded) > limit) return std::copysign(INFINITY, x);
  return static_cast<float>(rounded);
}

class CastTest : public testing::TestWithParam<Format> {
 protected:
  Array<float> ThroughFormat(Array<float>& x) {
    const int64_t n = x.size();
    Array<uint8_t> halves({2 * n});
    Array<float> back({n});
    const Tensor half{halves.data(), GetParam().dtype, {n}};
    Cpu(2).vector().Cast(AnyStream(), half, x.tensor());
    Cpu(2).vector().Cast(AnyStream(), back.tensor(), half);
    return back;
  }
};

TEST_P(CastTest, RoundsToNearestEven) {
  // All exponents, with fractions at, next to and between the ties.
  std::vector<float> values = {0.0F, -0.0F, INFINITY, -INFINITY, 65504.0F, 65519.996F, 65520.0F};
  for (uint32_t exponent = 0; exponent < 255; ++exponent) {
    for (uint32_t high = 0; high < 128; high += 3) {
      for (const uint32_t low :
           {0x0U, 0x1U, 0x1000U, 0xFFFU, 0x1001U, 0x3000U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
        const uint32_t bits = exponent << 23 | high << 16 | low;
        values.push_back(std::bit_cast<float>(bits));
        values.push_back(std::bit_cast<float>(bits | 0x80000000U));
      }
    }
  }
  Array<float> x({static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), x.data());
  const Array<float> back = ThroughFormat(x);
  for (int64_t i = 0; i < x.size(); ++i) {
    const float expected = Rounded(GetParam(), x[i]);
    ASSERT_EQ(std::bit_cast<uint32_t>(back[i]), std::bit_cast<uint32_t>(expected)) << x[i];
  }
}

TEST_P(CastTest, EveryValueOfTheFormatSurvives) {
  Array<uint8_t> bytes({2 * 65536}), again({2 * 65536});
  for (int64_t i = 0; i < 65536; ++i) {
    bytes[2 * i] = static_cast<uint8_t>(i & 0xFF);
    bytes[2 * i + 1] = static_cast<uint8_t>(i >> 8);
  }
  Array<float> wide({65536});
  const Tensor from{bytes.data(), GetParam().dtype, {65536}},
      to{again.data(), GetParam().dtype, {65536}};
  Cpu(1).vector().Cast(AnyStream(), wide.tensor(), from);
  Cpu(1).vector().Cast(AnyStream(), to, wide.tensor());
  for (int64_t i = 0; i < 65536; ++i) {
    if (std::isnan(wide[i])) continue;  // a quiet NaN comes back, with another payload perhaps
    ASSERT_TRUE(bytes[2 * i] == again[2 * i] && bytes[2 * i + 1] == again[2 * i + 1]) << i;
  }
}

TEST_P(CastTest, NanStaysNan) {
  Array<float> x({4});
  x[0] = std::bit_cast<float>(0x7F800001U);  // payload in the bits that are dropped
  x[1] = std::bit_cast<float>(0xFFFFFFFFU);
  x[2] = std::bit_cast<float>(0x7FC00000U);
  x[3] = std::bit_cast<float>(0x7F802000U);
  const Array<float> back = ThroughFormat(x);
  for (int64_t i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(back[i])) << i;
}

std::string FormatName(const testing::TestParamInfo<Format>& info) {
  return std::string(Name(info.param.dtype));
}
INSTANTIATE_TEST_SUITE_P(Formats, CastTest, testing::Values(kBf16, kF16), FormatName);

TEST(CastTest, BetweenSingleAndDouble) {
  Array<double> wide({3}, 0.1), back({3});
  Array<float> narrow({3});
  Cpu(1).vector().Cast(AnyStream(), narrow.tensor(), wide.tensor());
  EXPECT_EQ(narrow[1], 0.1F);
  Cpu(1).vector().Cast(AnyStream(), back.tensor(), narrow.tensor());
  EXPECT_EQ(back[1], double{0.1F});
}

}  // namespace
}  // namespace mt::kernels::cpu
