// Random schedules over links between devices that enqueue: orders that are drawn, queues that are
// short, links that write the peer's memory beside such as cannot. Nothing deadlocks, nothing
// arrives in the wrong place, nothing is overwritten early. MT_LONG_TESTS=1 (scripts/test.sh
// --full): fifty times as many.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/sanitized.h"
#include "tests/worker/parallel/pipeline/queued_stages.h"
#include "worker/parallel/schedule/check.h"
#include "worker/parallel/schedule/generate.h"

namespace mt::parallel {
namespace {

constexpr int kDeviceParts = 10;
constexpr int kDeviceCases = kSanitized ? 200 : 2000;

// Everything about one case follows from its number.
struct DeviceCase {
  explicit DeviceCase(uint64_t number) : random(number) {
    request = {.kind = static_cast<ScheduleKind>(Between(0, 2)),
               .stages = Between(2, 4),
               .microbatches = Between(1, 6)};
    if (request.kind == ScheduleKind::kInterleaved) {
      request.stages = Between(2, 3);
      request.chunks = Between(1, 3);
      request.group = Between(request.stages, 6);
      request.microbatches = request.group * Between(1, 6 / request.group);
    }
    evaluated = Between(1, 4);
    trains_again = Between(0, 3) == 0;
    short_queues = Between(0, 1) == 0;
    empty = Between(-request.stages, request.stages * request.chunks - 2);
    if (empty > 0) request.hand_on = {empty};
    for (int stage = 0; stage < request.stages; ++stage) refuses.push_back(Between(0, 5) == 0);
    order = random();
  }
  int Between(int low, int high) {
    return low + static_cast<int>(random() % static_cast<uint64_t>(high - low + 1));
  }
  std::string Text() const {
    return fmt::format(
        "{}, {} stages, {} microbatches and {} evaluated, {} chunks, group {}, {} queues, position "
        "{} without layers, {} stages refuse",
        Name(request.kind), request.stages, request.microbatches, evaluated, request.chunks,
        request.group, short_queues ? "short" : "long", empty,
        std::count(refuses.begin(), refuses.end(), true));
  }

  std::mt19937_64 random;
  ScheduleRequest request;
  int evaluated = 1;  // microbatches
  bool trains_again = false;
  bool short_queues = false;
  int empty = 0;  // the position of a chunk without layers, not the last; negative: none
  std::vector<bool> refuses;  // by stage: it names no memory
  uint64_t order = 0;
};

std::vector<int> SlotsByStage(const Schedule& schedule) {
  std::vector<int> sums;
  for (const std::vector<int>& slots : schedule.slots)
    sums.push_back(std::accumulate(slots.begin(), slots.end(), 0));
  return sums;
}

class DeviceSoak : public testing::TestWithParam<int> {
 protected:
  void Run(uint64_t number) {
    const DeviceCase drawn(number);
    SCOPED_TRACE(fmt::format("case {}: {}", number, drawn.Text()));
    const Schedule training = GenerateSchedule(drawn.request).value();
    const Schedule evaluation = ForwardOnly(training, drawn.evaluated);
    ASSERT_TRUE(CheckSchedule(evaluation).ok()) << CheckSchedule(evaluation);
    // Short: as long as it takes for a parcel in each slot, each behind its waits.
    const int slots = std::ranges::max(SlotsByStage(training));
    kernels::async::AsyncWorld world(
        {.seed = drawn.order, .queue_capacity = drawn.short_queues ? 8 * (slots + 1) : 1024});
    QueuedArgs args{.training = &training,
                    .passes = {&training, &evaluation},
                    .sharing =
                        [&](int stage) {
                          return drawn.refuses[static_cast<size_t>(stage)]
                                     ? kernels::async::Sharing::kNoExport
                                     : kernels::async::Sharing::kAll;
                        },
                    .is_empty = [&](int position) { return position == drawn.empty; },
                    .inject = {}};
    if (drawn.trains_again) args.passes.push_back(&training);
    QueuedStages stages(&world, cpu_.get(), std::move(args));
    try {
      for (const Status& result : stages.Run()) EXPECT_TRUE(result.ok()) << result;
    } catch (const kernels::DeviceError& error) {
      ADD_FAILURE() << error.what();
    }
    EXPECT_THAT(world.Races(), testing::IsEmpty());
    EXPECT_THAT(world.EarlyFrees(), testing::IsEmpty());
  }

 private:
  const std::unique_ptr<kernels::Backend> cpu_ = kernels::cpu::MakeCpuBackend({}).value();
};

TEST_P(DeviceSoak, EveryParcelArrivesInItsSlot) {
  const int cases =
      kDeviceCases / kDeviceParts * (std::getenv("MT_LONG_TESTS") == nullptr ? 1 : 50);
  testing::internal::CaptureStderr();  // a line for each link that was refused
  for (int i = 0; i < cases && !HasFailure(); ++i)
    Run(static_cast<uint64_t>(GetParam()) * static_cast<uint64_t>(cases) +
        static_cast<uint64_t>(i));
  static_cast<void>(testing::internal::GetCapturedStderr());
}
INSTANTIATE_TEST_SUITE_P(Parts, DeviceSoak, testing::Range(0, kDeviceParts));

}  // namespace
}  // namespace mt::parallel
