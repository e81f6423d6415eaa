// A lane on an asynchronous device: what is ordered with what, and that no wait is there for
// nothing.
#include "worker/parallel/lane.h"

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/async/async_device.h"
#include "kernels/cpu/cpu_backend.h"

namespace mt::parallel {
namespace {

using kernels::Stream;
using kernels::async::AsyncWorld;
using kernels::async::WaitName;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

// A lane with a device and one f64 in its memory, which starts at 1.
class LaneTest : public testing::Test {
 protected:
  static constexpr int kWindow = 2;

  void Start(AsyncWorld::Options options) {
    Stop();
    world_ = std::make_unique<AsyncWorld>(std::move(options));
    cpu_ = kernels::cpu::MakeCpuBackend({}).value();
    backend_ = kernels::async::MakeAsyncBackend({.cpu = cpu_.get(), .world = world_.get()});
    buffer_ = backend_->device().Allocate(8, kernels::MemoryKind::kDevice);
    stream_ = backend_->device().CreateStream(kernels::StreamPriority::kLow);
    lane_ = Lane::Create(&backend_->device(), "lane", kWindow);
    Fill(1);
  }
  ~LaneTest() override { Stop(); }
  void Stop() {
    lane_.reset();
    stream_.reset();
    buffer_.reset();
    backend_.reset();
  }
  kernels::Tensor x() { return {buffer_->data(), kernels::DType::kF64, {1}}; }
  void Fill(double value) { backend_->vector().Fill(*stream_, x(), value); }
  Status Double(Stream& stream) {
    backend_->vector().AddTo(stream, x(), x());
    return OkStatus();
  }
  Lane::Ticket PostDouble() {
    return lane_->Post(*stream_, [this](Stream& stream) { return Double(stream); });
  }
  // Two rounds: the stream's call, the lane's, the stream's again.
  void Run(std::optional<WaitName> drop) {
    Start({.drop = std::move(drop)});
    for (int i = 0; i < 2; ++i) {
      const Lane::Ticket ticket = PostDouble();
      EXPECT_TRUE(lane_->Await(*stream_, ticket).ok());
      EXPECT_TRUE(Double(*stream_).ok());
    }
    stream_->Synchronize();
  }
  double Value() { return *x().Data<double>(); }

  std::unique_ptr<AsyncWorld> world_;
  std::unique_ptr<kernels::Backend> cpu_, backend_;
  std::unique_ptr<kernels::DeviceBuffer> buffer_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Lane> lane_;
};

TEST_F(LaneTest, CallsRunBehindTheCallersAndBeforeTheConsumers) {
  Run({});
  EXPECT_EQ(Value(), 16);
  EXPECT_THAT(world_->Races(), IsEmpty());
  const std::vector<WaitName> waits = world_->NeededWaits();
  EXPECT_THAT(waits, SizeIs(4));
  EXPECT_EQ(world_->NumWaits(), 4);
  for (const WaitName& wait : waits) {
    Run(wait);
    EXPECT_THAT(world_->Races(), Not(IsEmpty())) << wait.Text();
  }
}

TEST_F(LaneTest, ATicketIsAwaitedWithinTheWindowInAnyOrder) {
  Start({});
  const Lane::Ticket first = PostDouble();
  const Lane::Ticket second = PostDouble();
  EXPECT_TRUE(lane_->Await(*stream_, second).ok());
  EXPECT_TRUE(lane_->Await(*stream_, first).ok());
  Fill(5);
  stream_->Synchronize();
  EXPECT_THAT(world_->Races(), IsEmpty());
  EXPECT_EQ(Value(), 5);
}

using LaneDeathTest = LaneTest;

TEST_F(LaneDeathTest, ATicketOutsideOfTheWindowAborts) {
  Start({});
  const Lane::Ticket first = PostDouble();
  PostDouble();
  PostDouble();
  EXPECT_DEATH(static_cast<void>(lane_->Await(*stream_, first)), "outside of the window");
}

TEST_F(LaneTest, AFirstFailureStaysAndNothingRunsBehindIt) {
  Start({});
  PostDouble();
  const Lane::Ticket failed =
      lane_->Post(*stream_, [](Stream&) { return base::Unavailable("no peer"); });
  PostDouble();
  EXPECT_EQ(lane_->status().message(), "no peer");
  EXPECT_EQ(lane_->Await(*stream_, failed), lane_->status());
  EXPECT_FALSE(lane_->busy());
  stream_->Synchronize();
}

}  // namespace
}  // namespace mt::parallel
