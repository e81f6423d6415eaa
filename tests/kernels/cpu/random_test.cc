// Philox against the known answers of its authors, and initial values: their distribution, and that
// a shard has the numbers of the whole tensor.
#include "kernels/core/random.h"

#include <cstring>

#include "kernels/cpu/loops/dropout.h"
#include "kernels/ops/vector.h"
#include "tests/kernels/cpu/op_test.h"

namespace mt::kernels::cpu {
namespace {

void ExpectWords(const Philox4& bits, const uint32_t (&words)[4]) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(bits.word[i], words[i]) << i;
}

TEST(PhiloxTest, KnownAnswers) {
  ExpectWords(Philox(0, {{0, 0, 0, 0}}), {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const uint32_t ones = 0xFFFFFFFF;
  ExpectWords(Philox(~uint64_t{0}, {{ones, ones, ones, ones}}),
              {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  // Random123's third vector: the digits of pi.
  ExpectWords(Philox(uint64_t{0x299f31d0} << 32 | 0xa4093822,
                     {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}),
              {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST(PhiloxTest, BatchEqualsSingleCalls) {
  const Philox4 counter = HiddenDropoutCounter(64, -3, 1LL << 40);
  uint32_t batch[4][kPhiloxBatch];
  PhiloxBatch(0xABCDEF0123456789U, counter.word[0], counter, batch);
  for (uint32_t i = 0; i < kPhiloxBatch; ++i) {
    Philox4 single = counter;
    single.word[0] += i;
    single = Philox(0xABCDEF0123456789U, single);
    for (int w = 0; w < 4; ++w) ASSERT_EQ(batch[w][i], single.word[w]);
  }
}

TEST(DropoutCounterTest, WordsAreWhatTheContractSays) {
  const Philox4 hidden = HiddenDropoutCounter(23, 9, (int64_t{7} << 32) + 5);
  ExpectWords(hidden, {2, 9, 5, 7});
  const Philox4 attention = AttentionDropoutCounter(17, 4, (int64_t{7} << 32) + 5, 3);
  ExpectWords(attention, {2, 4, 5, 3 + (7 << 16)});
  EXPECT_EQ(Bits16({{0x00020001, 0x00040003, 0, 0}}, 3), 4U);
}

TEST(DropoutRateTest, ThresholdIsRounded) {
  EXPECT_EQ(MakeDropoutRate(0).threshold, 0U);
  EXPECT_FALSE(MakeDropoutRate(0).active());
  EXPECT_EQ(MakeDropoutRate(0.1).threshold, 6554U);
  EXPECT_EQ(MakeDropoutRate(0.5).Scale(), 2.0);
}

template <class T>
Array<T> Normal(int64_t first, int64_t count, int threads, uint64_t key = 99) {
  Array<T> out({count});
  Cpu(threads).random().FillNormal(
      AnyStream(), {.key = key, .first_index = first, .std = 0.02, .out = out.tensor()});
  return out;
}

TEST(FillNormalTest, SlicesEqualTheWhole) {
  const Array<float> whole = Normal<float>(0, 5000, 1);
  for (const int64_t first : {0, 1, 2, 1023, 4097}) {
    for (const int threads : {1, 3}) {
      const int64_t count = std::min<int64_t>(5000 - first, 3001);
      const Array<float> slice = Normal<float>(first, count, threads);
      for (int64_t i = 0; i < count; ++i)
        ASSERT_EQ(slice[i], whole[first + i]) << first << "+" << i;
    }
  }
}

// Columns 3-7 of a [20, 11] matrix, in runs of 2 every 3 places: what a padded part of it draws.
TEST(FillNormalTest, PartsOfRowsGoToPlacesWithGaps) {
  constexpr int64_t kRows = 20, kWidth = 5, kColumns = 11, kFirst = 3;
  const base::Runs numbers{.length = kWidth, .stride = kColumns};
  const Array<double> whole = Normal<double>(0, kRows * kColumns, 1);
  for (const base::Runs& places : {base::Runs{}, base::Runs{.length = 2, .stride = 3, .skip = 1}}) {
    const int64_t span = places.Span(kRows * kWidth);
    for (const int threads : {1, 3}) {
      Array<double> out({span}, -7.0);
      Array<float> narrow({span}, -7.0F);
      Array<uint16_t> half({span}, 7), want({span}, 7);
      FillNormalArgs a{.key = 99,
                       .first_index = kFirst,
                       .numbers = numbers,
                       .places = places,
                       .std = 0.02,
                       .out = out.tensor()};
      Cpu(threads).random().FillNormal(AnyStream(), a);
      a.out = narrow.tensor();
      Cpu(threads).random().FillNormal(AnyStream(), a);
      a.out = {half.data(), DType::kBf16, {span}};
      Cpu(threads).random().FillNormal(AnyStream(), a);
      Cpu(1).vector().Cast(AnyStream(), {want.data(), DType::kBf16, {span}}, narrow.tensor());
      std::vector<bool> written(static_cast<size_t>(span), false);
      for (int64_t i = 0; i < kRows * kWidth; ++i) {
        const int64_t at = places.At(i);
        const double expected = whole[i / kWidth * kColumns + kFirst + i % kWidth];
        ASSERT_EQ(out[at], expected) << i;
        ASSERT_EQ(narrow[at], static_cast<float>(expected)) << i;
        ASSERT_EQ(half[at], want[at]) << i;
        written[static_cast<size_t>(at)] = true;
      }
      for (int64_t at = 0; at < span; ++at) {
        if (written[static_cast<size_t>(at)]) continue;
        ASSERT_TRUE(out[at] == -7 && narrow[at] == -7 && half[at] == 7) << "a gap was written";
      }
    }
  }
}

TEST(FillNormalTest, IndicesBeyond32BitsAreDistinct) {
  const Array<double> low = Normal<double>(2, 4, 1),
                      high = Normal<double>((int64_t{1} << 33) + 2, 4, 1);
  for (int64_t i = 0; i < 4; ++i) EXPECT_NE(low[i], high[i]);
}

TEST(FillNormalTest, ElementsFollowTheFormula) {
  // Elements 6 and 7 are pair 3: cosine and sine of one call.
  const Philox4 bits = Philox(99, {{3, 0, 0, 0}});
  const uint64_t a = bits.word[0] | uint64_t{bits.word[1]} << 32,
                 b = bits.word[2] | uint64_t{bits.word[3]} << 32;
  const double u1 = std::ldexp(static_cast<double>((a >> 11) + 1), -53);
  const double u2 = std::ldexp(static_cast<double>(b >> 11), -53);
  const double radius = std::sqrt(-2 * std::log(u1));
  const Array<double> x = Normal<double>(6, 2, 1);
  EXPECT_DOUBLE_EQ(x[0], 0.02 * (radius * std::cos(2 * M_PI * u2)));
  EXPECT_DOUBLE_EQ(x[1], 0.02 * (radius * std::sin(2 * M_PI * u2)));
}

TEST(FillNormalTest, TypesAreRoundingsOfOneAnother) {
  const Array<double> wide = Normal<double>(3, 3000, 2);
  const Array<float> single = Normal<float>(3, 3000, 2);
  for (int64_t i = 0; i < 3000; ++i) ASSERT_EQ(single[i], static_cast<float>(wide[i]));
  Array<uint8_t> direct({6000}), cast({6000});
  const Tensor direct_bf16{direct.data(), DType::kBf16, {3000}},
      cast_bf16{cast.data(), DType::kBf16, {3000}};
  Cpu(2).random().FillNormal(AnyStream(),
                             {.key = 99, .first_index = 3, .std = 0.02, .out = direct_bf16});
  Array<float> copy = single;
  Cpu(2).vector().Cast(AnyStream(), cast_bf16, copy.tensor());
  EXPECT_TRUE(direct == cast);
}

TEST(FillNormalTest, MomentsOfANormalDistribution) {
  constexpr int64_t kN = 400000;
  const Array<double> x = Normal<double>(0, kN, 2);
  double moment[5] = {};
  for (int64_t i = 0; i < kN; ++i) {
    for (int k = 1; k < 5; ++k) moment[k] += std::pow(x[i] / 0.02, k) / kN;
  }
  // Five standard errors: sqrt(1, 2, 15, 96) / sqrt(n).
  const double unit = 5 / std::sqrt(static_cast<double>(kN));
  EXPECT_NEAR(moment[1], 0, unit);
  EXPECT_NEAR(moment[2], 1, unit * std::sqrt(2));
  EXPECT_NEAR(moment[3], 0, unit * std::sqrt(15));
  EXPECT_NEAR(moment[4], 3, unit * std::sqrt(96));
  // Another name, another stream; neighbours uncorrelated.
  const Array<double> y = Normal<double>(0, kN, 2, 100);
  double across = 0, next = 0;
  for (int64_t i = 1; i < kN; ++i) {
    across += x[i] * y[i] / 4e-4 / kN;
    next += x[i] * x[i - 1] / 4e-4 / kN;
  }
  EXPECT_NEAR(across, 0, unit);
  EXPECT_NEAR(next, 0, unit);
}

}  // namespace
}  // namespace mt::kernels::cpu
