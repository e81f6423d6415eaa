// The device that enqueues does so, and keeps the order of streams and events alone; and what tests
// rely on the stand-in to notice.
#include "tests/worker/comm/queue_device.h"

#include <atomic>
#include <future>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "tests/worker/comm/nccl_harness.h"

namespace mt::comm {
namespace {

using kernels::StreamPriority;

// A stream whose work waits until it is opened.
class Held {
 public:
  explicit Held(QueueDevice* device) : stream_(device->CreateStream(StreamPriority::kLow)) {
    EnqueueOn(*stream_, [gate = opened_.get_future().share()] { gate.wait(); });
  }
  void Open() { opened_.set_value(); }
  kernels::Stream& operator*() { return *stream_; }

 private:
  std::promise<void> opened_;
  const std::unique_ptr<kernels::Stream> stream_;
};

TEST(QueueDevice, RunsWhatAStreamHoldsInOrderAndLater) {
  QueueDevice device;
  Held stream(&device);
  const auto buffer = device.Allocate(1000, kernels::MemoryKind::kDevice);
  const std::vector<char> ones(1000, 1);
  std::vector<char> back(1000, 9);
  device.Copy(*stream, buffer->data(), ones.data(), 1000);
  device.Copy(*stream, back.data(), buffer->data(), 500);
  device.Zero(*stream, buffer->data(), 1000);
  device.Copy(*stream, back.data() + 500, buffer->data(), 500);
  EXPECT_EQ(back, std::vector<char>(1000, 9));
  stream.Open();
  (*stream).Synchronize();
  std::vector<char> expected(1000, 0);
  std::fill_n(expected.begin(), 500, 1);
  EXPECT_EQ(back, expected);
}

TEST(QueueDevice, AWaitKeepsTheRecordingOfItsTime) {
  QueueDevice device;
  Held first(&device);
  Held second(&device);
  const auto waiting = device.CreateStream(StreamPriority::kLow);
  const auto event = device.CreateEvent();
  EXPECT_TRUE(event->IsDone()) << "never recorded";
  event->Record(*first);
  waiting->Wait(*event);
  event->Record(*second);
  first.Open();
  waiting->Synchronize();  // not for the second recording
  EXPECT_FALSE(event->IsDone());
  second.Open();
  event->Synchronize();
  EXPECT_TRUE(event->IsDone());
}

TEST(QueueDevice, AStreamWaitsForAWord) {
  QueueDevice device;
  const auto buffer = device.Allocate(4, kernels::MemoryKind::kDevice);
  auto* const word = static_cast<uint32_t*>(buffer->data());
  *word = 0xFFFFFFFF;
  const auto waiting = device.CreateStream(StreamPriority::kLow);
  Held writing(&device);
  waiting->WaitValue(word, 2);  // beyond the end of the numbers
  const auto waited = device.CreateEvent();
  waited->Record(*waiting);
  (*writing).WriteValue(word, 3);
  EXPECT_FALSE(waited->IsDone());
  writing.Open();
  waited->Synchronize();
  EXPECT_EQ(*word, 3U);
}

TEST(QueueDevice, MarksAreReachedInOrder) {
  QueueDevice device;
  const auto marks = device.CreateMarkRing(4, base::Clock::Real());
  Held stream(&device);
  marks->Mark(*stream);
  marks->Mark(*stream);
  EXPECT_EQ(marks->Newest(), 0);
  stream.Open();
  (*stream).Synchronize();
  EXPECT_EQ(marks->Newest(), 2);
  EXPECT_LE(marks->TimeOf(1).value_or(INT64_MAX), marks->TimeOf(2).value_or(0))
      << "both are there, in order";
}

NcclComm MakeAlone() {
  const NcclApi& nccl = StandIn()->api;
  NcclUniqueId id;
  NcclComm comm = nullptr;
  NcclConfig config;
  EXPECT_EQ(nccl.get_unique_id(&id), NcclResult::kSuccess);
  EXPECT_EQ(nccl.comm_init_rank_config(&comm, 1, id, 0, &config), NcclResult::kSuccess);
  return comm;
}

TEST(NcclStandInDeathTest, AHandleThatWasFreedEndsTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const NcclApi& nccl = StandIn()->api;
  NcclResult error = NcclResult::kSuccess;
  EXPECT_DEATH(
      {
        NcclComm const comm = MakeAlone();
        nccl.comm_abort(comm);
        nccl.comm_get_async_error(comm, &error);
      },
      "ncclCommGetAsyncError of a communicator that was freed");
  EXPECT_DEATH(
      {
        NcclComm const comm = MakeAlone();
        nccl.comm_abort(comm);
        nccl.comm_destroy(comm);
      },
      "ncclCommDestroy of a communicator that was freed");
}

TEST(NcclStandIn, AGroupWithAnErrorRunsNothing) {
  const NcclApi& nccl = StandIn()->api;
  QueueDevice device;
  const auto stream = device.CreateStream(StreamPriority::kLow);
  NcclComm const comm = MakeAlone();
  int32_t in = 1;
  int32_t out = 0;
  const auto sum = [&](NcclStream on) {
    return nccl.all_reduce(&in, &out, 1, NcclType::kI32, NcclRedOp::kSum, comm, on);
  };
  nccl.group_start();
  EXPECT_EQ(sum(stream->native()), NcclResult::kSuccess);
  EXPECT_EQ(sum(nullptr), NcclResult::kInvalidArgument);
  EXPECT_EQ(nccl.group_end(), NcclResult::kInvalidArgument);
  stream->Synchronize();
  EXPECT_EQ(out, 0);
  EXPECT_EQ(sum(stream->native()), NcclResult::kSuccess) << "the group is over";
  EXPECT_EQ(nccl.comm_destroy(comm), NcclResult::kSuccess);
  EXPECT_EQ(out, 1) << "the end waits for its calls";
}

}  // namespace
}  // namespace mt::comm
