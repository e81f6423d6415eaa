// Conversions round once: held to a search for the nearest of all 16-bit values, where another type
// on the way would show.
#include "worker/hf/element_types.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace mt::hf {
namespace {

using Converter = void (*)(std::string_view from, const std::byte* in, std::string_view to,
                           std::byte* out, int64_t count);

template <class To, class From>
To Convert(Converter convert, std::string_view from, From value, std::string_view to) {
  To out{};
  convert(from, reinterpret_cast<const std::byte*>(&value), to, reinterpret_cast<std::byte*>(&out),
          1);
  return out;
}

uint16_t Narrow(double value, std::string_view to) {
  return Convert<uint16_t>(ConvertElements, "F64", value, to);
}

double ValueOf(uint16_t bits, std::string_view type) {
  return Convert<double>(ConvertElements, type, bits, "F64");
}

// All finite values of a 16-bit type in order, each with its pattern.
std::vector<std::pair<double, uint16_t>> ValuesOf(std::string_view type) {
  std::map<double, uint16_t> values;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double value = ValueOf(static_cast<uint16_t>(bits), type);
    if (std::isfinite(value)) values.emplace(value, static_cast<uint16_t>(bits));
  }
  return {values.begin(), values.end()};
}

// The nearest value, of two the one whose pattern is even. Within the range of the values.
double Nearest(const std::vector<std::pair<double, uint16_t>>& values, double x) {
  const auto above =
      std::ranges::lower_bound(values, x, {}, [](const auto& value) { return value.first; });
  if (above->first == x) return x;
  const auto below = above - 1;
  const double up = above->first - x, down = x - below->first;
  const bool upwards = up == down ? (above->second & 1U) == 0 : up < down;
  return upwards ? above->first : below->first;
}

TEST(HfElementTypes, DoublesAreRoundedOnceToSixteenBits) {
  // A tie but for a bit that no float has.
  EXPECT_EQ(ValueOf(Narrow(1 + 0x1p-8 + 0x1p-30, "BF16"), "BF16"), 1.0078125);
  EXPECT_EQ(ValueOf(Narrow(1 + 0x1p-8, "BF16"), "BF16"), 1.0);
  EXPECT_EQ(ValueOf(Narrow(-1 - 0x1p-8 - 0x1p-52, "BF16"), "BF16"), -1.0078125);
  EXPECT_EQ(ValueOf(Narrow(1 + 0x1p-11 + 0x1p-40, "F16"), "F16"), 1 + 0x1p-10);
  EXPECT_EQ(ValueOf(Narrow(1 + 0x3p-11 - 0x1p-40, "F16"), "F16"), 1 + 0x1p-10);
  const double inf = std::numeric_limits<double>::infinity();
  for (const std::string type : {"BF16", "F16"}) {
    EXPECT_EQ(ValueOf(Narrow(1e300, type), type), inf);
    EXPECT_EQ(ValueOf(Narrow(-inf, type), type), -inf);
    EXPECT_EQ(ValueOf(Narrow(1e-300, type), type), 0.0);
    EXPECT_TRUE(std::signbit(ValueOf(Narrow(-1e-300, type), type)));
    EXPECT_TRUE(std::isnan(ValueOf(Narrow(std::nan(""), type), type)));
    const auto values = ValuesOf(type);
    std::mt19937_64 random(20261134);
    for (int round = 0; round < 200'000; ++round) {
      // A value of the type or the middle of two, and a little beside it: the last bits decide.
      const size_t at = random() % (values.size() - 1);
      double x = values[at].first;
      if (random() % 2 == 0) x = (x + values[at + 1].first) / 2;
      const int far = static_cast<int>(random() % 52);
      if (random() % 4 != 0) x += std::ldexp(x, -far) * (random() % 2 == 0 ? 1 : -1);
      if (!(x > values.front().first && x < values.back().first) || x == 0) continue;
      ASSERT_EQ(ValueOf(Narrow(x, type), type), Nearest(values, x))
          << type << " " << std::bit_cast<uint64_t>(x) << " " << x;
    }
  }
}

TEST(HfElementTypes, OnePlusIsRoundedOnce) {
  const auto one_plus = [](std::string_view from, auto value, std::string_view to) {
    return ValueOf(Convert<uint16_t>(ConvertOnePlus, from, value, to), to);
  };
  EXPECT_EQ(one_plus("F32", 0x1p-8F + 0x1p-31F, "BF16"), 1.0078125);
  EXPECT_EQ(one_plus("F32", 0x1p-8F, "BF16"), 1.0);
  EXPECT_EQ(one_plus("F64", 0x1p-8 + 0x1p-60, "BF16"), 1.0078125) << "the sum is no double";
  EXPECT_EQ(one_plus("F64", -0x1p-9 - 0x1p-61, "BF16"), 1 - 0x1p-8);
  EXPECT_EQ(one_plus("F64", -0x1p-9 + 0x1p-61, "BF16"), 1.0);
  EXPECT_EQ(one_plus("F64", 0x1p-11 + 0x1p-63, "F16"), 1 + 0x1p-10);
  EXPECT_EQ(one_plus("F64", -1.0, "BF16"), 0.0);
  EXPECT_EQ((Convert<float>(ConvertOnePlus, "F32", 0x1p-24F + 0x1p-40F, "F32")), 1 + 0x1p-23F);
  EXPECT_EQ((Convert<float>(ConvertOnePlus, "F64", 0x1p-24 + 0x1p-60, "F32")), 1 + 0x1p-23F);
  EXPECT_EQ((Convert<double>(ConvertOnePlus, "F64", 0.25, "F64")), 1.25);
  EXPECT_EQ((Convert<double>(ConvertOnePlus, "F32", 0x1p-40F, "F64")), 1 + 0x1p-40);
}

}  // namespace
}  // namespace mt::hf
