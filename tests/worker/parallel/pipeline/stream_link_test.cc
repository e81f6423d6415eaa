// Links over a group whose calls enqueue (NCCL), on asynchronous devices that share no memory and
// whose sends wait for their receives: every schedule in many orders, each wait left out in turn,
// and receives that begin one action ahead.
#include "worker/parallel/pipeline/stream_link.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/worker/parallel/pipeline/queued_stages.h"
#include "worker/parallel/schedule/generate.h"

namespace mt::parallel {
namespace {

struct StreamLayout {
  const char* name;
  ScheduleRequest request;
  std::function<bool(int position)> is_empty;
  std::vector<std::string> harmless;  // patterns of waits that no memory depends on
};

void PrintTo(const StreamLayout& layout, std::ostream* out) { *out << layout.name; }

class StreamLinkTest : public testing::TestWithParam<StreamLayout> {
 protected:
  // What went wrong. Evaluation shares the slots of training.
  std::string RunIn(kernels::async::AsyncWorld* world) {
    QueuedStages stages(world, cpu_.get(),
                        {.training = &training_,
                         .passes = {&training_, &evaluation_, &training_},
                         .sharing = [](int) { return kernels::async::Sharing::kNone; },
                         .is_empty = GetParam().is_empty,
                         .inject = {}});
    std::string error;
    try {
      for (const Status& result : stages.Run()) {
        if (!result.ok()) error = base::Message(result);
      }
    } catch (const kernels::DeviceError& fault) {
      error = fault.what();
    }
    for (int stage = 0; stage < training_.stages; ++stage) EXPECT_TRUE(stages.NonePeer(stage));
    return error;
  }

  const std::unique_ptr<kernels::Backend> cpu_ = kernels::cpu::MakeCpuBackend({}).value();
  const Schedule training_ = GenerateSchedule(GetParam().request).value();
  const Schedule evaluation_ = ForwardOnly(training_, 3);
};

class StreamOrdersTest : public StreamLinkTest {};

TEST_P(StreamOrdersTest, EveryOrderDeliversEveryParcel) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    kernels::async::AsyncWorld world({.seed = seed});
    EXPECT_EQ(RunIn(&world), "");
    EXPECT_THAT(world.Races(), testing::IsEmpty()) << seed;
    EXPECT_THAT(world.EarlyFrees(), testing::IsEmpty()) << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, StreamOrdersTest,
    testing::Values(StreamLayout{"four_stages",
                                 {.kind = ScheduleKind::kOneFOneB, .stages = 4, .microbatches = 5},
                                 {},
                                 {}},
                    StreamLayout{"gpipe",
                                 {.kind = ScheduleKind::kGPipe, .stages = 3, .microbatches = 4},
                                 {},
                                 {}},
                    StreamLayout{"ring_of_three",
                                 {.kind = ScheduleKind::kInterleaved,
                                  .stages = 3,
                                  .microbatches = 8,
                                  .chunks = 3,
                                  .group = 4},
                                 {},
                                 {}},
                    StreamLayout{"chunks_without_layers",
                                 {.kind = ScheduleKind::kOneFOneB, .stages = 4, .microbatches = 4},
                                 [](int position) { return position == 1 || position == 2; },
                                 {}}),
    [](const auto& instance) { return instance.param.name; });

class StreamWaitsTest : public StreamLinkTest {};

TEST_P(StreamWaitsTest, NoWaitCanBeLeftOut) {
  std::vector<kernels::async::WaitName> names;
  {
    kernels::async::AsyncWorld world({});
    EXPECT_EQ(RunIn(&world), "");
    names = world.NeededWaits();
  }
  ASSERT_THAT(names, testing::Not(testing::IsEmpty()));
  int num_seen = 0;
  for (const kernels::async::WaitName& name : names) {
    kernels::async::AsyncWorld world({.drop = name});
    const std::string error = RunIn(&world);
    if (!world.Races().empty() || !error.empty()) {
      ++num_seen;
      continue;
    }
    const bool is_known = std::ranges::any_of(GetParam().harmless, [&](const std::string& pattern) {
      return testing::Matches(testing::ContainsRegex(pattern))(name.Text());
    });
    EXPECT_TRUE(is_known) << name.Text();
  }
  // Of each parcel: that it is made, that it has come, and of most that its place is free.
  EXPECT_GT(num_seen, 2 * training_.microbatches);
}

// What keeps a receive from waiting on the device, with the thread blocks it takes, before its
// time. Memory is free by then wherever a parcel follows from the last use of its slot.
constexpr const char* kReceiveInTime = "'recv pp-[a-z]+/[0-9-]+' waits for s0 '";

INSTANTIATE_TEST_SUITE_P(
    Layouts, StreamWaitsTest,
    testing::Values(
        // The evaluation's forwards write no gradients, and training's wait again.
        StreamLayout{"one_f_one_b",
                     {.kind = ScheduleKind::kOneFOneB, .stages = 2, .microbatches = 3},
                     {},
                     {kReceiveInTime, "rank 1: s0 'copy' waits for s6 'send pp-grad/1-0', 2"}},
        // The last chunk has made its gradients in its forwards: all of them are there for the
        // first that is sent.
        StreamLayout{"gpipe",
                     {.kind = ScheduleKind::kGPipe, .stages = 2, .microbatches = 3},
                     {},
                     {kReceiveInTime, "rank 1: s0 'copy' waits for s6 'send pp-grad/1-0', 2",
                      "rank 1: s6 'send pp-grad/1-0' waits for s0 'copy', "}},
        StreamLayout{
            "ring",
            {.kind = ScheduleKind::kInterleaved, .stages = 2, .microbatches = 2, .chunks = 2},
            {},
            {kReceiveInTime}},
        // Whoever sends the buffer's next parcel has computed it from what was sent out of it.
        StreamLayout{"chunk_without_layers",
                     {.kind = ScheduleKind::kOneFOneB, .stages = 3, .microbatches = 3},
                     [](int position) { return position == 1; },
                     {kReceiveInTime, "rank 1: s0 'copy' waits for s6 'send pp-act/1-2', ",
                      "rank 1: s0 'copy' waits for s9 'send pp-grad/1-0', ",
                      "rank 2: s0 'copy' waits for s6 'send pp-grad/2-1', 2"}}),
    [](const auto& instance) { return instance.param.name; });

// Two stages; the second expects two parcels. Its compute stream is stuck in the action that uses
// the first.
class StreamAheadTest : public testing::Test {
 protected:
  StreamAheadTest() {
    for (int rank = 0; rank < 2; ++rank) {
      backends_.push_back(
          kernels::async::MakeAsyncBackend({.cpu = cpu_.get(), .world = &world_, .rank = rank}));
      streams_.push_back(device(rank).CreateStream(kernels::StreamPriority::kLow));
      memory_.push_back(device(rank).Allocate(256, kernels::MemoryKind::kDevice));
      const comm::GroupSpec spec{.name = "pp-act/0-1", .members = {0, 1}, .my_index = rank};
      groups_.push_back(hub_.Create(spec).value());
    }
    sender_ = std::make_unique<StreamSender>(std::move(groups_[0]), &device(0));
    receiver_ = std::make_unique<StreamReceiver>(std::move(groups_[1]), &device(1));
    for (const int slot : {0, 1}) {
      slots_.push_back({0, slot, {At(1, slot), kernels::DType::kI32, {1}}});
      sent_.push_back({0, slot, {At(0, slot), kernels::DType::kI32, {1}}});
    }
    device(1).Zero(*streams_[1], At(1, kWord), sizeof(uint32_t));
    streams_[1]->Synchronize();
  }
  kernels::Device& device(int rank) { return backends_[static_cast<size_t>(rank)]->device(); }
  uint32_t* At(int rank, int place) {
    return static_cast<uint32_t*>(memory_[static_cast<size_t>(rank)]->data()) + place;
  }
  // Sends both parcels and waits until they have been received.
  void SendAll() {
    EXPECT_TRUE(sender_->Begin(*streams_[0], {}).ok());
    for (const Parcel& parcel : sent_) {
      device(0).Zero(*streams_[0], parcel.tensor.data, parcel.tensor.Bytes());
      EXPECT_TRUE(sender_->Send(*streams_[0], parcel).ok());
      EXPECT_TRUE(sender_->WaitSent(*streams_[0], 0, parcel.slot).ok());
    }
    streams_[0]->Synchronize();
  }

  static constexpr int kWord = 2;  // that the stuck action waits for
  kernels::async::AsyncWorld world_{{}};
  const std::unique_ptr<kernels::Backend> cpu_ = kernels::cpu::MakeCpuBackend({}).value();
  comm::AsyncHub hub_{{.world = &world_, .send_window = 0, .config = {}}};
  std::vector<std::unique_ptr<kernels::Backend>> backends_;
  std::vector<std::unique_ptr<kernels::Stream>> streams_;
  std::vector<std::unique_ptr<kernels::DeviceBuffer>> memory_;
  std::vector<std::unique_ptr<comm::ProcessGroup>> groups_;
  std::unique_ptr<StreamSender> sender_;
  std::unique_ptr<StreamReceiver> receiver_;
  std::vector<Parcel> slots_, sent_;
};

TEST_F(StreamAheadTest, AParcelIsReceivedBesideTheActionBeforeItsOwn) {
  ASSERT_TRUE(receiver_->Begin(*streams_[1], slots_, {}).ok());
  ASSERT_TRUE(receiver_->WaitReady(*streams_[1], 0, 0).ok());
  ASSERT_TRUE(receiver_->Expect(*streams_[1], 1).ok());
  streams_[1]->WaitValue(At(1, kWord), 1);  // the action
  SendAll();
  EXPECT_EQ(*At(1, 1), 0U) << "new memory has all bits set";
  const auto other = device(1).CreateStream(kernels::StreamPriority::kLow);
  other->WriteValue(At(1, kWord), 1);
  receiver_->Release(*streams_[1], 0, 0);
  EXPECT_TRUE(receiver_->WaitReady(*streams_[1], 0, 1).ok());
  receiver_->Release(*streams_[1], 0, 1);
  streams_[1]->Synchronize();
  EXPECT_THAT(world_.Races(), testing::IsEmpty());
}

TEST_F(StreamAheadTest, ASlotInUseIsNotReceivedInto) {
  slots_[1] = slots_[0];
  ASSERT_TRUE(receiver_->Begin(*streams_[1], slots_, {}).ok());
  ASSERT_TRUE(receiver_->WaitReady(*streams_[1], 0, 0).ok());
  ASSERT_TRUE(receiver_->Expect(*streams_[1], 1).ok());
  streams_[1]->WaitValue(At(1, kWord), 1);
  try {
    SendAll();
    FAIL() << "no deadlock";
  } catch (const kernels::DeviceError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("send pp-act/0-1"));
  }
}

}  // namespace
}  // namespace mt::parallel
