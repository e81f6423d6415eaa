// Links between devices that write each other's memory, on asynchronous devices: every schedule in
// many orders, each wait and word left out in turn, devices that refuse, and aborts.
#include "worker/parallel/pipeline/peer_link.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/worker/parallel/pipeline/queued_stages.h"
#include "worker/comm/host_identity.h"
#include "worker/parallel/schedule/generate.h"

namespace mt::parallel {
namespace {

int CountOf(std::string_view part, std::string_view text) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

using kernels::Stream;
using kernels::StreamPriority;
using kernels::async::AsyncDevice;
using kernels::async::AsyncWorld;
using kernels::async::Sharing;
using kernels::async::WaitName;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr auto kOneFOneB = ScheduleKind::kOneFOneB;
constexpr auto kInterleaved = ScheduleKind::kInterleaved;

struct Layout {
  const char* name;
  ScheduleRequest request;
  std::function<bool(int position)> is_empty;
  std::vector<std::string> harmless;  // waits that no memory depends on
};

void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

class PeerLinkTest : public testing::TestWithParam<Layout> {
 protected:
  struct Outcome {
    std::string error;  // of the device, or of a stage
    bool all_peer = true;
  };
  // Evaluation shares the slots of training.
  Outcome RunIn(AsyncWorld* world,
                const std::function<Status(int, int, const Action&)>& inject = {}) {
    QueuedStages stages(world, cpu_.get(),
                        {.training = &training_,
                         .passes = {&training_, &evaluation_, &training_},
                         .sharing = [](int) { return Sharing::kAll; },
                         .is_empty = GetParam().is_empty,
                         .inject = inject});
    Outcome outcome;
    try {
      for (const Status& result : stages.Run()) {
        if (!result.ok()) outcome.error = base::Message(result);
      }
    } catch (const kernels::DeviceError& error) {
      outcome.error = error.what();
    }
    for (int stage = 0; stage < training_.stages; ++stage)
      outcome.all_peer = outcome.all_peer && stages.AllPeer(stage);
    return outcome;
  }

  const std::unique_ptr<kernels::Backend> cpu_ = kernels::cpu::MakeCpuBackend({}).value();
  const Schedule training_ = GenerateSchedule(GetParam().request).value();
  const Schedule evaluation_ = ForwardOnly(training_, 3);
};

class PeerOrdersTest : public PeerLinkTest {};

TEST_P(PeerOrdersTest, EveryOrderDeliversEveryParcel) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    AsyncWorld world({.seed = seed});
    const Outcome outcome = RunIn(&world);
    EXPECT_EQ(outcome.error, "");
    EXPECT_TRUE(outcome.all_peer);
    EXPECT_THAT(world.Races(), IsEmpty()) << seed;
    EXPECT_THAT(world.EarlyFrees(), IsEmpty()) << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, PeerOrdersTest,
    testing::Values(
        Layout{"one_f_one_b", {.kind = kOneFOneB, .stages = 2, .microbatches = 5}},
        Layout{"gpipe", {.kind = ScheduleKind::kGPipe, .stages = 3, .microbatches = 4}},
        Layout{"four_stages", {.kind = kOneFOneB, .stages = 4, .microbatches = 5}},
        Layout{"ring", {.kind = kInterleaved, .stages = 2, .microbatches = 4, .chunks = 2}},
        Layout{"ring_of_three",
               {.kind = kInterleaved, .stages = 3, .microbatches = 8, .chunks = 3, .group = 4}},
        Layout{"chunks_without_layers",
               {.kind = kOneFOneB, .stages = 4, .microbatches = 4},
               [](int position) { return position == 1 || position == 2; }}),
    [](const auto& instance) { return instance.param.name; });

// A stage fails, in one pass or another; every stage's stream comes to its end.
TEST_P(PeerOrdersTest, AFailureEndsAllWaitsOfAllStages) {
  for (int at = 0; at < 6; ++at) {
    SCOPED_TRACE(at);
    AsyncWorld world({.seed = static_cast<uint64_t>(at)});
    int actions = 0;  // of the one stage
    const Outcome outcome = RunIn(&world, [&](int stage, int pass_number, const Action&) {
      if (stage != at % training_.stages || pass_number < 3 - at % 3 || actions++ < at)
        return OkStatus();
      return base::Internal("told to fail");
    });
    EXPECT_THAT(outcome.error, testing::AllOf(Not(IsEmpty()), Not(HasSubstr("deadlock"))));
  }
}

class PeerWaitsTest : public PeerLinkTest {};

TEST_P(PeerWaitsTest, NoWaitAndNoWordCanBeLeftOut) {
  std::vector<WaitName> names;
  {
    AsyncWorld world({});
    EXPECT_EQ(RunIn(&world).error, "");
    names = world.NeededWaits();
  }
  ASSERT_THAT(names, Not(IsEmpty()));
  std::vector<std::string> unseen;
  for (const WaitName& name : names) {
    AsyncWorld world({.drop = name});
    const Outcome outcome = RunIn(&world);
    if (world.Races().empty() && outcome.error.empty()) unseen.push_back(name.Text());
  }
  EXPECT_THAT(unseen, testing::UnorderedElementsAreArray(GetParam().harmless));
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, PeerWaitsTest,
    testing::Values(
        Layout{"one_f_one_b", {.kind = kOneFOneB, .stages = 2, .microbatches = 3}, {}, {}},
        // The last chunk has made its gradients in its forwards: all of them are there for the
        // first that is sent.
        Layout{
            "gpipe",
            {.kind = ScheduleKind::kGPipe, .stages = 2, .microbatches = 3},
            {},
            {"rank 1: s8 'copy' waits for s0 'copy', 0", "rank 1: s8 'copy' waits for s0 'copy', 1",
             "rank 1: s8 'copy' waits for s0 'copy', 3",
             "rank 1: s8 'copy' waits for s0 'copy', 4"}},
        // The first parcel of a pass follows from gradients that followed from the slot's latest
        // parcel.
        Layout{"ring",
               {.kind = kInterleaved, .stages = 2, .microbatches = 2, .chunks = 2},
               {},
               {"rank 0: s3 'copy' waits for word 0 of rank 0 to be 11, 0"}},
        // Whoever sends the buffer's next parcel has computed it from what was sent out of it.
        Layout{"chunk_without_layers",
               {.kind = kOneFOneB, .stages = 3, .microbatches = 3},
               [](int position) { return position == 1; },
               {"rank 1: s0 'copy' waits for s13 'copy', 1",
                "rank 1: s0 'copy' waits for s13 'copy', 7",
                "rank 1: s0 'copy' waits for s13 'copy', 9",
                "rank 1: s0 'copy' waits for s8 'copy', 7"}}),
    [](const auto& instance) { return instance.param.name; });

// Where one end refuses, both send over groups of the device, and both say why.
TEST(PeerFallbackTest, RefusalsOfEitherEndLeadBothToTheOtherLinks) {
  const auto cpu = kernels::cpu::MakeCpuBackend({}).value();
  const Schedule training =
      GenerateSchedule({.kind = kOneFOneB, .stages = 2, .microbatches = 3}).value();
  const std::pair<Sharing, const char*> refusals[] = {
      {Sharing::kNone, "shares no memory"},
      {Sharing::kNoPath, "there is no path between GPUs ASYNC-"},
      {Sharing::kNoExport, "this device names no memory"},
      {Sharing::kNoImport, "this device maps no memory"}};
  for (const auto& [refusal, why] : refusals) {
    for (const std::vector<int>& refusing : {std::vector<int>{0}, {1}, {0, 1}}) {
      SCOPED_TRACE(fmt::format("{}, by {} of which the first is {}", why, refusing.size(),
                               refusing.front()));
      AsyncWorld world({});
      const auto sharing = [&, refusal = refusal](int stage) {
        const bool refuses = std::count(refusing.begin(), refusing.end(), stage) > 0;
        return refuses ? refusal : Sharing::kAll;
      };
      QueuedStages stages(&world, cpu.get(),
                          {.training = &training,
                           .passes = {&training},
                           .sharing = sharing,
                           .is_empty = {},
                           .inject = {}});
      testing::internal::CaptureStderr();
      for (const Status& result : stages.Run()) EXPECT_TRUE(result.ok()) << result;
      const std::string log = testing::internal::GetCapturedStderr();
      EXPECT_TRUE(stages.NonePeer(0) && stages.NonePeer(1));
      EXPECT_THAT(world.Races(), IsEmpty());
      // Two links with two ends each.
      EXPECT_EQ(CountOf("stages of one host send to each other by NCCL", log), 4) << log;
      EXPECT_EQ(CountOf(why, log), 4) << log;
    }
  }
}

// Two workers on one machine are two nodes: their stages send as two machines' do, though they
// could write each other's memory, and there is nothing to warn of.
TEST(PeerFallbackTest, NodesOfOneMachineSendOverTheOtherLinks) {
  const auto cpu = kernels::cpu::MakeCpuBackend({}).value();
  const Schedule training =
      GenerateSchedule({.kind = kOneFOneB, .stages = 3, .microbatches = 3}).value();
  AsyncWorld world({});
  QueuedStages stages(
      &world, cpu.get(),
      {.training = &training,
       .passes = {&training},
       .sharing = [](int) { return Sharing::kAll; },
       .is_empty = {},
       .host_of = [](int stage) { return comm::HostIdentity(stage < 2 ? "node-a" : "node-b"); },
       .inject = {}});
  testing::internal::CaptureStderr();
  for (const Status& result : stages.Run()) EXPECT_TRUE(result.ok()) << result;
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_TRUE(stages.AllPeer(0)) << "both are node-a's";
  EXPECT_FALSE(stages.AllPeer(1) || stages.NonePeer(1)) << "one neighbour is on another node";
  EXPECT_TRUE(stages.NonePeer(2));
  EXPECT_THAT(world.Races(), IsEmpty());
}

}  // namespace
}  // namespace mt::parallel
