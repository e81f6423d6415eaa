// GradientSync on asynchronous devices: the bits of the CPU in every layout and every order that is
// drawn, and no wait that could be left out unseen.
#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/async/async_world.h"
#include "tests/sanitized.h"
#include "tests/worker/parallel/sync_rig.h"

namespace mt::parallel {
namespace {

using kernels::DType;
using kernels::async::AsyncWorld;
using kernels::async::WaitName;
using testing::IsEmpty;

constexpr int64_t kSteps = 3;

class AsyncSyncTest
    : public testing::TestWithParam<std::tuple<layout::MeshSizes, int, bool, bool>> {
 protected:
  RigLayout LayoutOn(AsyncWorld* world) const {
    return {.mesh = std::get<0>(GetParam()),
            .zero_stage = std::get<1>(GetParam()),
            .overlap = std::get<2>(GetParam()),
            .dtype = DType::kF32,
            .world = world,
            .copies = world != nullptr && std::get<3>(GetParam())};
  }
  std::unique_ptr<RigMesh> Train(AsyncWorld* world) const {
    auto mesh = std::make_unique<RigMesh>(LayoutOn(world), RigConstants(std::get<0>(GetParam())));
    mesh->TrainEnqueued(kSteps);
    return mesh;
  }
};

TEST_P(AsyncSyncTest, EveryOrderGivesTheBitsOfTheCpu) {
  const auto inline_run = Train(nullptr);
  EXPECT_EQ(inline_run->rank(0).scalars().adam_step, kSteps);
  for (uint64_t seed = kSanitized ? 2 : 0; seed < 4; ++seed) {
    AsyncWorld world({.seed = seed});
    const auto mesh = Train(&world);
    ExpectSameBits(*inline_run, *mesh, fmt::format("seed {}", seed));
    EXPECT_THAT(world.Races(), IsEmpty());
  }
}

class DroppedWaitTest : public AsyncSyncTest {};

TEST_P(DroppedWaitTest, NoWaitCanBeLeftOut) {
  std::vector<WaitName> waits;
  {
    AsyncWorld world({});
    Train(&world);
    waits = world.NeededWaits();
    EXPECT_THAT(world.EarlyFrees(), IsEmpty());
    EXPECT_EQ(waits.empty(), !LayoutOn(nullptr).overlap && !LayoutOn(&world).copies);
  }
  int64_t count = 0;
  for (const WaitName& wait : waits) {
    if (wait.rank != 0) continue;  // ranks do the same
    // Those of a group over copies are tested by its own test (tests/worker/async): here some of
    // them follow from sums of all ranks between two steps, which a group does not know of.
    if (wait.site.find(" word ") != std::string::npos) continue;
    if (wait.site.find(" stores ") != std::string::npos) continue;
    if (kSanitized && count++ % 4 != 0) continue;
    AsyncWorld world({.drop = wait});
    Train(&world);
    EXPECT_FALSE(world.Races().empty() && world.EarlyFrees().empty()) << wait.Text();
  }
}

using testing::Bool;
using testing::Values;

// kEnds: two replicas of a pipeline whose ends hold a tied word table.
constexpr layout::MeshSizes kTwo{.dp = 2}, kFour{.dp = 4}, kEnds{.dp = 2, .pp = 2};
const auto kName = [](const auto& instance) {
  const layout::MeshSizes& mesh = std::get<0>(instance.param);
  return fmt::format("dp{}{}_zero{}_{}{}", mesh.dp, mesh.pp == 1 ? "" : "_pp2",
                     std::get<1>(instance.param),
                     std::get<2>(instance.param) ? "overlap" : "inline",
                     std::get<3>(instance.param) ? "_copies" : "");
};

INSTANTIATE_TEST_SUITE_P(Layouts, AsyncSyncTest,
                         testing::Combine(Values(kTwo, kFour, kEnds), Values(0, 1), Bool(), Bool()),
                         kName);
INSTANTIATE_TEST_SUITE_P(Layouts, DroppedWaitTest,
                         testing::Combine(Values(kTwo), Values(0, 1), Bool(), Bool()), kName);

}  // namespace
}  // namespace mt::parallel
