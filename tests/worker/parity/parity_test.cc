// Every layout of the table against one rank: 20 steps with dropout, in double and single
// precision, training and validation loss and gradient norm; and each layout against itself, bit
// for bit. The tests are registered by name, so that CTest lists them as parity.<layout>.
#include <array>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "tests/sanitized.h"
#include "tests/worker/parity/curves.h"
#include "tests/worker/parity/layouts.h"

namespace mt::parity {
namespace {

constexpr std::array<std::string_view, 2> kPrecisions = {"fp64", "fp32"};

class ParityTest : public testing::Test {
 public:
  explicit ParityTest(const Layout& layout) : layout_(layout) {}

  void TestBody() override {
    runner_.ExpectBuckets(layout_);
    for (const std::string_view precision : kPrecisions) {
      SCOPED_TRACE(precision);
      if (IsLeftOut(precision)) continue;
      const Curve alone = runner_.RunAlone(layout_, precision);
      ASSERT_EQ(alone.steps.size(), static_cast<size_t>(kSteps));
      EXPECT_LT(alone.steps.back().loss, alone.steps.front().loss - 0.1) << "it learns";
      ASSERT_EQ(alone.evals.size(), 3U) << "after steps 8 and 16, and over the whole split";
      EXPECT_EQ(alone.steps.front().tokens < alone.steps.back().tokens, layout_.ramp);
      const Curve first = runner_.Run(layout_, precision);
      ExpectClose(first, alone, BoundsOf(precision));
      if (!kSanitized && (layout_.ranks == Ranks::kThreads || precision == kPrecisions.back())) {
        EXPECT_TRUE(runner_.Run(layout_, precision) == first) << "twice the same bits";
      }
      if (layout_.compare_overlap) CompareOverlap(first, precision);
    }
  }

 private:
  // Under sanitizers a family has one precision, and no run is done again.
  bool IsLeftOut(std::string_view precision) const {
    return kSanitized && (precision == kPrecisions.front()) != (layout_.family == Family::kGpt2);
  }
  // Both are on by default.
  void CompareOverlap(const Curve& with, std::string_view precision) {
    const Curve without =
        runner_.Run(layout_, precision,
                    {"parallel.overlap.grad_reduce=false", "parallel.overlap.param_gather=false"});
    EXPECT_TRUE(without == with) << "the same bits without overlap";
  }

  const Layout layout_;
  Runner runner_;
};

// Under sanitizers only those that the table marks.
void RegisterAll() {
  for (const Layout& layout : Layouts()) {
    if (kSanitized && !layout.sanitized) continue;
    testing::RegisterTest("parity", NameOf(layout).c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [layout]() -> ParityTest* { return new ParityTest(layout); });
  }
}

}  // namespace
}  // namespace mt::parity

int main(int argc, char** argv) {
  // What is left to release builds: runs of hundreds of steps, ranks as processes, and what
  // compares two runs alike.
  if (mt::kSanitized) {
    GTEST_FLAG_SET(filter,
                   "parity.*:LayoutTable.*:OverflowTest.*:ReplicasTest.*-OverflowTest.Where*");
  }
  testing::InitGoogleTest(&argc, argv);
  mt::parity::RegisterAll();
  return RUN_ALL_TESTS();
}
