// Random schedules with random delays over links between threads: nothing deadlocks, nothing
// arrives in the wrong place, nothing is overwritten early. MT_LONG_TESTS=1 (scripts/test.sh
// --full): ten times as many.
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/sanitized.h"
#include "tests/worker/parallel/pipeline/slow_group.h"
#include "tests/worker/parallel/pipeline/stages.h"
#include "worker/comm/threads/hub.h"
#include "worker/parallel/schedule/check.h"
#include "worker/parallel/schedule/generate.h"

namespace mt::parallel {
namespace {

constexpr int kSchedules = kSanitized ? 200 : 1000;

// Everything about one case follows from its seed.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  int Between(int low, int high) {
    return low + static_cast<int>(engine_() % static_cast<uint64_t>(high - low + 1));
  }

 private:
  std::mt19937_64 engine_;
};

ScheduleRequest RandomRequest(Dice* dice) {
  ScheduleRequest request{.kind = static_cast<ScheduleKind>(dice->Between(0, 2)),
                          .stages = dice->Between(1, 8),
                          .microbatches = dice->Between(1, 16)};
  if (request.kind != ScheduleKind::kInterleaved) return request;
  request.stages = dice->Between(2, 8);
  request.chunks = dice->Between(1, 4);
  request.group = dice->Between(request.stages, 16);
  request.microbatches = request.group * dice->Between(1, 16 / request.group);
  return request;
}

std::string Describe(uint64_t seed, const ScheduleRequest& request, bool overlap) {
  return fmt::format("seed {}: {}, {} stages, {} microbatches, {} chunks, group {}, overlap {}",
                     seed, Name(request.kind), request.stages, request.microbatches, request.chunks,
                     request.group, overlap ? "on" : "off");
}

void RunCase(uint64_t seed) {
  Dice dice(seed);
  const ScheduleRequest request = RandomRequest(&dice);
  const bool overlap = dice.Between(0, 3) > 0;
  SCOPED_TRACE(Describe(seed, request, overlap));
  const Schedule training = GenerateSchedule(request).value();
  const Schedule evaluation = ForwardOnly(training, dice.Between(1, 16));
  ASSERT_TRUE(CheckSchedule(evaluation).ok()) << CheckSchedule(evaluation);
  const int empty = dice.Between(-training.num_positions(), training.num_positions() - 1);
  comm::ThreadsHub hub({.op_timeout = std::chrono::minutes(1)});
  SlowFactory slow(&hub, dice.Between(0, 2) * 100, seed);
  const std::vector<Status> results =
      RunStages({.training = &training,
                 .passes = {&training, &evaluation, &training},
                 .overlap = overlap,
                 .seed = seed,
                 .max_delay_us = dice.Between(0, 1) * 100,
                 .is_empty = [empty](int position) { return position == empty; },
                 .early_gradient = dice.Between(0, 1) > 0,
                 .inject = {},
                 .after_pass = {},
                 .factory = [&](int) -> comm::GroupFactory& { return slow; }});
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result;
}

// Part k of 10 of all cases.
class Soak : public testing::TestWithParam<int> {};

TEST_P(Soak, EveryMessageArrivesInItsSlot) {
  const int cases = kSchedules / 10 * (std::getenv("MT_LONG_TESTS") == nullptr ? 1 : 10);
  for (int i = 0; i < cases && !HasFailure(); ++i) {
    RunCase(static_cast<uint64_t>(GetParam() * cases + i));
  }
}
INSTANTIATE_TEST_SUITE_P(Parts, Soak, testing::Range(0, 10));

}  // namespace
}  // namespace mt::parallel
