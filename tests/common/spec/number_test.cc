// Numbers in the forms in which users write them.
#include "common/spec/number.h"

#include <limits>

#include <gtest/gtest.h>

namespace mt::spec {
namespace {

TEST(Number, IntegersAreExact) {
  EXPECT_EQ(ParseInteger("12"), 12);
  EXPECT_EQ(ParseInteger("-3"), -3);
  EXPECT_EQ(ParseInteger("1e6"), 1'000'000);
  EXPECT_EQ(ParseInteger("9223372036854775807"), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(ParseInteger("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  for (const char* bad : {"", " 1", "1 ", "1.5", "9223372036854775808", "1e19", "1e-1", "0x10",
                          "nan", "--1", "1e", "e5", ".", "1_000", "1,000"}) {
    EXPECT_EQ(ParseInteger(bad), std::nullopt) << bad;
  }
}

TEST(Number, CountsTakeDecimalSuffixes) {
  EXPECT_EQ(ParseCount("300M"), 300'000'000);
  EXPECT_EQ(ParseCount("1.5B"), 1'500'000'000);
  EXPECT_EQ(ParseCount("2T"), 2'000'000'000'000);
  EXPECT_EQ(ParseCount("0.5K"), 500);
  for (const char* bad : {"1.5", "0.0005K", "3m", "3KB", "K", "1e30T", "10000000T"}) {
    EXPECT_EQ(ParseCount(bad), std::nullopt) << bad;
  }
}

TEST(Number, BytesTakeBothKindsOfSuffix) {
  EXPECT_EQ(ParseBytes("64MiB"), 64LL << 20);
  EXPECT_EQ(ParseBytes("1.5GiB"), 3LL << 29);
  EXPECT_EQ(ParseBytes("1GB"), 1'000'000'000);
  EXPECT_EQ(ParseBytes("123"), 123);
  EXPECT_EQ(ParseBytes("64Mib"), std::nullopt);
  EXPECT_EQ(FormatBytes(64LL << 20), "64MiB");
  EXPECT_EQ(FormatBytes(1000), "1000B");
}

TEST(Number, DurationsAreMilliseconds) {
  EXPECT_EQ(ParseDuration("500ms"), 500);
  EXPECT_EQ(ParseDuration("90s"), 90'000);
  EXPECT_EQ(ParseDuration("1h30m"), 5'400'000);
  EXPECT_EQ(ParseDuration("0"), 0);
  for (const char* bad : {"", "90", "-5s", "1h-30m", "s", "1.0001ms", "5 s", "9e18d", "1hh"}) {
    EXPECT_EQ(ParseDuration(bad), std::nullopt) << bad;
  }
  EXPECT_EQ(FormatDuration(90'000), "90s");
  EXPECT_EQ(FormatDuration(900'000), "15m");
  EXPECT_EQ(FormatDuration(1'500), "1500ms");
}

TEST(Number, RealsAreFinite) {
  EXPECT_EQ(ParseReal("6.0e-4"), 6e-4);
  EXPECT_EQ(ParseReal("+1"), 1.0);
  for (const char* bad : {"nan", "inf", "-inf", "1e999", "", "1..2", "0x1p3", ".inf", "1e-3 "}) {
    EXPECT_EQ(ParseReal(bad), std::nullopt) << bad;
  }
}

TEST(Number, LengthsAreCountsOrPercentages) {
  EXPECT_EQ(ParseLength("2M")->count, 2'000'000);
  EXPECT_DOUBLE_EQ(ParseLength("2.5%")->percent, 2.5);
  EXPECT_EQ(FormatLength(*ParseLength("2.5%")), "2.5%");
  EXPECT_EQ(FormatLength(*ParseLength("2M")), "2000000");
  for (const char* bad : {"-1", "101%", "-1%", "%", "nan%"}) EXPECT_FALSE(ParseLength(bad)) << bad;
}

TEST(Number, ProductsSaturate) {
  EXPECT_EQ(SaturatingProduct(3, 4), 12);
  EXPECT_EQ(SaturatingProduct(int64_t{1} << 40, int64_t{1} << 40),
            std::numeric_limits<int64_t>::max());
}

}  // namespace
}  // namespace mt::spec
