// Whether boxes cover a region once: against counting every element, of boxes that cover it and of
// such that do not quite.
#include "worker/checkpoint/format/coverage.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

namespace mt::checkpoint {
namespace {

using Dims = std::vector<int64_t>;

struct TestBox {
  Dims offset, shape;
};

Status Check(const std::vector<TestBox>& boxes, const Dims& shape) {
  BoxList list(shape.size());
  for (const TestBox& box : boxes) list.Add(box.offset, box.shape);
  return CheckCoveredOnce(list, shape);
}

// Counts how many boxes hold each element.
bool EachOnce(const std::vector<TestBox>& boxes, const Dims& shape) {
  int64_t elements = 1;
  for (const int64_t dim : shape) elements *= dim;
  for (int64_t i = 0; i < elements; ++i) {
    int holders = 0;
    for (const TestBox& box : boxes) {
      bool inside = true;
      int64_t rest = i;
      for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) {
        const int64_t at = rest % shape[d];
        inside = inside && at >= box.offset[d] && at < box.offset[d] + box.shape[d];
      }
      holders += inside ? 1 : 0;
    }
    if (holders != 1) return false;
  }
  return true;
}

// Cuts a box anywhere, again and again.
std::vector<TestBox> RandomCuts(const Dims& shape, int cuts, std::mt19937* random) {
  std::vector<TestBox> boxes = {{Dims(shape.size(), 0), shape}};
  for (int i = 0; i < cuts && !shape.empty(); ++i) {
    TestBox& box = boxes[(*random)() % boxes.size()];
    const size_t d = (*random)() % shape.size();
    const auto at = static_cast<int64_t>((*random)() % static_cast<uint64_t>(box.shape[d] + 1));
    TestBox rest = box;
    rest.offset[d] += at;
    rest.shape[d] -= at;
    box.shape[d] = at;
    boxes.push_back(rest);
  }
  std::shuffle(boxes.begin(), boxes.end(), *random);
  return boxes;
}

TEST(CoverageTest, AgreesWithCounting) {
  std::mt19937 random(5);
  int good = 0, bad = 0;
  for (int round = 0; round < 4000; ++round) {
    static const std::vector<Dims> shapes = {{}, {1}, {9}, {6, 5}, {1, 7}, {4, 3, 3}, {2, 3, 2, 2}};
    const Dims& shape = shapes[random() % shapes.size()];
    std::vector<TestBox> boxes = RandomCuts(shape, static_cast<int>(random() % 8), &random);
    // Nothing, one box moved or changed by one, one twice, one missing.
    TestBox& one = boxes[random() % boxes.size()];
    const size_t d = shape.empty() ? 0 : random() % shape.size();
    switch (random() % 5) {
      case 1:
        if (!shape.empty() && one.offset[d] + one.shape[d] < shape[d]) ++one.offset[d];
        break;
      case 2:
        if (!shape.empty() && one.offset[d] > 0) --one.offset[d];
        break;
      case 3:
        boxes.push_back(TestBox(one));
        break;
      case 4:
        boxes.erase(boxes.begin());
        break;
      default:
        break;
    }
    const bool expected = EachOnce(boxes, shape);
    const Status status = Check(boxes, shape);
    ASSERT_EQ(status.ok(), expected) << round << ": " << status;
    EXPECT_TRUE(expected || absl::IsDataLoss(status));
    ++(expected ? good : bad);
  }
  EXPECT_GT(good, 800);
  EXPECT_GT(bad, 800);
}

TEST(CoverageTest, SaysWhatIsWrong) {
  EXPECT_EQ(Check({{{0, 0}, {2, 3}}, {{1, 2}, {1, 1}}}, {2, 3}).message(),
            "slices 0 and 1 overlap");
  EXPECT_EQ(Check({{{0, 0}, {1, 3}}, {{1, 0}, {1, 2}}}, {2, 3}).message(),
            "slices hold 5 of 6 elements");
  EXPECT_EQ(Check({}, {2}).message(), "slices hold 0 of 2 elements");
  EXPECT_EQ(Check({{{}, {}}, {{}, {}}}, {}).message(), "slices 0 and 1 overlap");
  // A gap and an overlap of the same size.
  EXPECT_FALSE(Check({{{0}, {2}}, {{1}, {2}}, {{4}, {2}}}, {6}).ok());
}

// A gap and an overlap of one element, where those that overlap are no neighbours in any order.
TEST(CoverageTest, OfThreeDimensionsMoreThanNeighboursMeet) {
  std::vector<TestBox> boxes = {{{1, 0, 0}, {1, 4, 4}}, {{0, 0, 0}, {1, 4, 1}},
                                {{0, 1, 3}, {1, 1, 1}}, {{0, 2, 0}, {1, 1, 1}},
                                {{0, 0, 1}, {1, 1, 3}}, {{0, 1, 1}, {1, 1, 2}},
                                {{0, 2, 1}, {1, 1, 3}}, {{0, 3, 1}, {1, 1, 2}}};
  EXPECT_EQ(Check(boxes, {2, 4, 4}).message(), "slices 1 and 3 overlap");
  boxes[3].offset = {0, 3, 3};
  EXPECT_TRUE(Check(boxes, {2, 4, 4}).ok());
}

// Pairs of 300,000 boxes would take minutes.
TEST(CoverageTest, ManyBoxesTakeNoPairs) {
  constexpr int64_t kRows = 1000, kBoxes = 300'000;
  for (const bool tall : {false, true}) {
    std::vector<TestBox> boxes;
    const Dims shape = tall ? Dims{kBoxes / kRows * 4, kRows} : Dims{kRows, kBoxes / kRows * 4};
    for (int64_t i = 0; i < kBoxes; ++i) {
      const int64_t row = i % kRows, at = i / kRows * 4;
      boxes.push_back(tall ? TestBox{{at, row}, {4, 1}} : TestBox{{row, at}, {1, 4}});
    }
    EXPECT_TRUE(Check(boxes, shape).ok());
    boxes[kBoxes / 2].offset[tall ? 0 : 1] += 1;
    EXPECT_FALSE(Check(boxes, shape).ok());
  }
}

}  // namespace
}  // namespace mt::checkpoint
