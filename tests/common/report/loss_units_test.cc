// A loss in perplexity and in bits per byte, and where it has neither.
#include "common/report/loss_units.h"

#include <limits>

#include <gtest/gtest.h>

namespace mt::report {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(LossUnits, PerplexityEndsAtTwentyNats) {
  EXPECT_EQ(Perplexity(0), 1);
  EXPECT_DOUBLE_EQ(*Perplexity(std::log(50257.0)), 50257);
  EXPECT_EQ(Perplexity(20.5), std::exp(20.0));
  EXPECT_EQ(Perplexity(kNaN), std::nullopt);
  EXPECT_EQ(Perplexity(kInfinity), std::nullopt);
}

// A byte that each token is, and a model that knows nothing: eight bits.
TEST(LossUnits, BitsPerByteCountBytesNotTokens) {
  EXPECT_DOUBLE_EQ(*BitsPerByte(100 * std::log(256.0), 100), 8);
  EXPECT_DOUBLE_EQ(*BitsPerByte(100 * std::log(256.0), 400), 2) << "tokens of four bytes";
  EXPECT_EQ(BitsPerByte(0, 3), 0);
  EXPECT_EQ(BitsPerByte(1, 0), std::nullopt);
  EXPECT_EQ(BitsPerByte(1, kNaN), std::nullopt) << "nobody knows them";
  EXPECT_EQ(BitsPerByte(kNaN, 3), std::nullopt);
}

}  // namespace
}  // namespace mt::report
