// Orders of documents: numpy's where they are listed, permutations where they are computed.
#include "worker/data/prepare/document_order.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "worker/data/shuffle.h"

namespace mt::data {
namespace {

std::vector<int64_t> All(const DocumentOrder& order, int64_t count) {
  std::vector<int64_t> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) out[static_cast<size_t>(i)] = order.At(i);
  return out;
}

TEST(DocumentOrderTest, ListedOrdersAreNumpys) {
  std::vector<int64_t> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  ShuffleStream(5).Shuffle(expected);
  EXPECT_EQ(All(DocumentOrder(100, 5), 100), expected);
  EXPECT_NE(All(DocumentOrder(100, 5, 99), 100), expected) << "one too many to be listed";
}

TEST(DocumentOrderTest, ComputedOrdersArePermutationsThatDependOnTheSeed) {
  for (const int64_t count : {1, 2, 3, 4, 5, 16, 17, 1000, 4096, 5000}) {
    std::vector<int64_t> order = All(DocumentOrder(count, 1, 0), count);
    const std::vector<int64_t> other = All(DocumentOrder(count, 2, 0), count);
    if (count >= 16) {
      EXPECT_NE(order, other) << count;
    }
    std::ranges::sort(order);
    std::vector<int64_t> numbers(order.size());
    std::iota(numbers.begin(), numbers.end(), 0);
    EXPECT_EQ(order, numbers) << count;
  }
}

// Halves of the old order are mixed: of 10,000 documents about 5,000 come from another half.
TEST(DocumentOrderTest, ComputedOrdersMix) {
  constexpr int64_t kCount = 10000;
  const std::vector<int64_t> order = All(DocumentOrder(kCount, 3, 0), kCount);
  int64_t moved = 0;
  int64_t ascents = 0;
  for (int64_t i = 0; i < kCount; ++i) {
    const int64_t now = order[static_cast<size_t>(i)];
    moved += (i < kCount / 2) != (now < kCount / 2) ? 1 : 0;
    if (i > 0) ascents += now > order[static_cast<size_t>(i - 1)] ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(moved), 5000, 300);
  EXPECT_NEAR(static_cast<double>(ascents), 5000, 300);
}

}  // namespace
}  // namespace mt::data
