// Every layout of the table on devices that queue their calls (kernels/async), in an order that is
// drawn, with links and groups over the peers' memory, over messages, or both, and forward's
// products whole or by shards: the curve of the CPU to the last bit, and no races. MT_LONG_TESTS=1
// (scripts/test.sh --full): a thousand runs instead of one of each layout.
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/async/async_peer_memory.h"
#include "kernels/async/async_world.h"
#include "tests/worker/parity/curves.h"
#include "tests/worker/parity/layouts.h"

namespace mt::parity {
namespace {

using kernels::async::AsyncWorld;
using kernels::async::Sharing;

constexpr int kDeviceParts = 8;
constexpr int kLongRuns = 1000;

// Three steps, an evaluation between them and one at the end.
const std::vector<std::string> kThreeSteps = {
    "training.train_iters=3", "training.eval.every_iters=2", "training.eval.iters=1"};

// What the ranks of a run share: everything, nothing, or what each draws.
std::vector<Sharing> DrawSharing(std::mt19937_64* random) {
  const uint64_t kind = (*random)() % 4;
  std::vector<Sharing> of_rank(kMaxWorld, kind == 2 ? Sharing::kNone : Sharing::kAll);
  if (kind != 3) return of_rank;
  for (Sharing& own : of_rank) {
    if ((*random)() % 3 == 0) own = Sharing::kNoExport;
  }
  return of_rank;
}

class DeviceParityTest : public testing::TestWithParam<int> {
 protected:
  void Run(int number) {
    Layout layout = Layouts()[static_cast<size_t>(number) % Layouts().size()];
    layout.ranks = Ranks::kThreads;
    std::mt19937_64 random(static_cast<uint64_t>(number));
    const std::vector<Sharing> sharing = DrawSharing(&random);
    const bool shards = random() % 2 == 0;
    SCOPED_TRACE(NameOf(layout) + ", run " + std::to_string(number));
    const Curve inline_run =
        runner_.RunOnDevices(layout, "fp32", {.shard_products = shards}, kThreeSteps);
    ASSERT_EQ(inline_run.steps.size(), 3U);
    ASSERT_EQ(inline_run.evals.size(), 2U);
    AsyncWorld world({.seed = random()});
    const Curve run = runner_.RunOnDevices(
        layout, "fp32",
        {.world = &world,
         .kind = random() % 2 == 0 ? kernels::DeviceKind::kCpu : kernels::DeviceKind::kCuda,
         .sharing = [&](int rank) { return sharing[static_cast<size_t>(rank)]; },
         .shard_products = shards},
        kThreeSteps);
    EXPECT_TRUE(run == inline_run) << "the same bits";
    EXPECT_THAT(world.Races(), testing::IsEmpty());
    EXPECT_THAT(world.EarlyFrees(), testing::IsEmpty());
  }

 private:
  Runner runner_;
};

TEST_P(DeviceParityTest, IsTheCurveOfTheCpuInAnyOrder) {
  const int runs =
      std::getenv("MT_LONG_TESTS") == nullptr ? static_cast<int>(Layouts().size()) : kLongRuns;
  testing::internal::CaptureStderr();  // a line for each link and group that was refused
  for (int i = GetParam(); i < runs && !HasFailure(); i += kDeviceParts) Run(i);
  static_cast<void>(testing::internal::GetCapturedStderr());
}
INSTANTIATE_TEST_SUITE_P(Parts, DeviceParityTest, testing::Range(0, kDeviceParts));

}  // namespace
}  // namespace mt::parity
