// One asynchronous device: what runs when, what is reported as a race, and that a seed repeats an
// order.
#include "kernels/async/async_device.h"

#include <chrono>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/clock.h"
#include "kernels/cpu/cpu_backend.h"

namespace mt::kernels::async {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// A world with one device.
class Rig {
 public:
  explicit Rig(AsyncWorld::Options options = {})
      : world_(std::move(options)),
        cpu_(cpu::MakeCpuBackend({}).value()),
        backend_(MakeAsyncBackend({.cpu = cpu_.get(), .world = &world_})) {}

  AsyncWorld& world() { return world_; }
  Backend& backend() { return *backend_; }
  Device& device() { return backend_->device(); }
  std::unique_ptr<Stream> NewStream() { return device().CreateStream(StreamPriority::kLow); }
  // f64 [4] on the device.
  Tensor NewTensor() {
    buffers_.push_back(device().Allocate(4 * sizeof(double), MemoryKind::kDevice));
    return {buffers_.back()->data(), DType::kF64, {4}};
  }
  void Fill(Stream& stream, const Tensor& to, double value) {
    backend_->vector().Fill(stream, to, value);
  }
  void Add(Stream& stream, const Tensor& to, const Tensor& from) {
    backend_->vector().AddTo(stream, to, from);
  }
  static double First(const Tensor& tensor) { return *tensor.Data<double>(); }

 private:
  AsyncWorld world_;
  std::unique_ptr<Backend> cpu_;
  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
};

TEST(AsyncDeviceTest, NothingRunsBeforeAWaitAndHostMemoryIsReadLate) {
  Rig rig;
  EXPECT_TRUE(rig.device().Enqueues());
  const auto stream = rig.NewStream();
  const Tensor x = rig.NewTensor();
  EXPECT_TRUE(std::isnan(Rig::First(x)));
  double value = 1;
  rig.device().Copy(*stream, x.data, &value, sizeof(value));
  rig.Add(*stream, x, x);
  value = 2;
  EXPECT_TRUE(std::isnan(Rig::First(x)));
  stream->Synchronize();
  EXPECT_EQ(Rig::First(x), 4);
  EXPECT_EQ(rig.world().Order().first, 2);
}

TEST(AsyncDeviceTest, EventsOrderStreams) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Rig rig({.seed = seed});
    const auto a = rig.NewStream(), b = rig.NewStream();
    const auto event = rig.device().CreateEvent();
    const Tensor x = rig.NewTensor(), y = rig.NewTensor();
    rig.Fill(*a, x, 1);
    event->Record(*a);
    b->Wait(*event);
    rig.Fill(*b, y, 0);
    rig.Add(*b, y, x);
    event->Record(*b);  // the wait of b keeps its point
    a->Wait(*event);
    rig.Fill(*a, x, 5);
    rig.Add(*a, x, y);
    event->Synchronize();
    EXPECT_EQ(Rig::First(y), 1) << seed;
    a->Synchronize();
    EXPECT_EQ(Rig::First(x), 6) << seed;
    EXPECT_THAT(rig.world().Races(), IsEmpty());
    EXPECT_THAT(rig.world().EarlyFrees(), IsEmpty());
  }
}

TEST(AsyncDeviceTest, WithoutAWaitStreamsRunInAnyOrderAndTheRaceIsNamed) {
  std::set<double> results;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Rig rig({.seed = seed});
    const auto a = rig.NewStream(), b = rig.NewStream();
    const Tensor x = rig.NewTensor();
    rig.Fill(*a, x, 1);
    a->Synchronize();
    rig.Fill(*a, x, 2);
    rig.Add(*b, x, x);
    a->Synchronize();
    b->Synchronize();
    results.insert(Rig::First(x));
    const std::vector<std::string> races = rig.world().Races();
    ASSERT_THAT(races, testing::Not(IsEmpty())) << seed;
    for (const std::string& race : races) {
      EXPECT_THAT(race,
                  AllOf(HasSubstr("rank 0: "), HasSubstr("'to' of vector.Fill on s0 (writes)"),
                        HasSubstr("vector.AddTo on s1")));
    }
  }
  EXPECT_THAT(results, ElementsAre(2, 4));
}

// A race is found in every order that is drawn, whatever hides it from the result.
TEST(AsyncDeviceTest, ARaceNeedsOneWriteAndOverlap) {
  Rig rig;
  const auto a = rig.NewStream(), b = rig.NewStream();
  const Tensor x = rig.NewTensor(), y = rig.NewTensor(), z = rig.NewTensor();
  const auto half = [](const Tensor& of, int64_t begin) {
    return Tensor{static_cast<double*>(of.data) + begin, of.dtype, {2}};
  };
  for (const Tensor& of : {x, y, z}) rig.Fill(*a, of, 1);
  a->Synchronize();
  rig.Add(*a, y, x);  // both read x
  rig.Add(*b, z, x);
  a->Synchronize();
  b->Synchronize();
  rig.Fill(*a, half(x, 0), 1);
  rig.Fill(*b, half(x, 2), 1);  // beside it
  a->Synchronize();
  b->Synchronize();
  EXPECT_THAT(rig.world().Races(), IsEmpty());
  rig.Fill(*a, half(x, 0), 1);
  rig.Fill(*b, half(x, 1), 1);  // one element in common
  a->Synchronize();
  b->Synchronize();
  EXPECT_THAT(rig.world().Races(), SizeIs(1));
}

// What the host has waited for comes before all that any stream is given later.
TEST(AsyncDeviceTest, TheHostOrdersWhatItWaitedFor) {
  for (const char* way : {"stream", "event", "poll", "none"}) {
    Rig rig;
    const auto a = rig.NewStream(), b = rig.NewStream();
    const auto event = rig.device().CreateEvent();
    EXPECT_TRUE(event->IsDone()) << "never recorded";
    event->Synchronize();
    const Tensor x = rig.NewTensor();
    rig.Fill(*a, x, 1);
    event->Record(*a);
    if (way == std::string("stream")) a->Synchronize();
    if (way == std::string("event")) event->Synchronize();
    if (way == std::string("poll")) {
      EXPECT_FALSE(event->IsDone()) << "of two calls a poll runs one";
      while (!event->IsDone()) continue;
    }
    rig.Fill(*b, x, 2);
    b->Synchronize();
    a->Synchronize();
    EXPECT_THAT(rig.world().Races(), SizeIs(way == std::string("none") ? 1 : 0)) << way;
    if (way != std::string("none")) {
      EXPECT_EQ(Rig::First(x), 2);
    }
  }
}

TEST(AsyncDeviceTest, WorkspacesAndScalarBlocksRaceToo) {
  Rig rig;
  const auto a = rig.NewStream(), b = rig.NewStream();
  StepScalars scalars = InitialStepScalars({.max_lr = 1});
  const EndOfStep vector;
  const Tensor x = rig.NewTensor(), y = rig.NewTensor(), momentum = rig.NewTensor();
  for (const Tensor& of : {x, y, momentum}) rig.Fill(*a, of, 1);
  a->Synchronize();
  rig.backend().update().Advance(*a, &scalars, &vector, {.max_lr = 1});
  rig.backend().update().Sgd(
      *b, {.gradient = x, .master = y, .momentum = momentum, .scalars = &scalars});
  a->Synchronize();
  b->Synchronize();
  const std::vector<std::string> races = rig.world().Races();
  ASSERT_THAT(races, SizeIs(1));
  EXPECT_THAT(races[0], AllOf(HasSubstr("'scalars' of update.Advance on s0 (writes)"),
                              HasSubstr("'scalars' of update.Sgd on s1 (reads)")));
}

TEST(AsyncDeviceTest, AWaitThatIsLeftOutIsFound) {
  constexpr int kRounds = 3;
  const auto run = [](std::optional<WaitName> drop) {
    auto rig = std::make_unique<Rig>(AsyncWorld::Options{.drop = std::move(drop)});
    const auto a = rig->NewStream(), b = rig->NewStream();
    const auto event = rig->device().CreateEvent();
    const Tensor x = rig->NewTensor(), y = rig->NewTensor();
    for (int i = 0; i < kRounds; ++i) {
      rig->Fill(*a, y, i);
      event->Record(*a);
      b->Wait(*event);  // the next one covers it
      rig->Fill(*a, x, i);
      event->Record(*a);
      b->Wait(*event);
      if (i == 0) b->Wait(*event);  // one of two that are alike
      rig->Add(*b, x, y);
      event->Record(*b);
      a->Wait(*event);
    }
    a->Synchronize();
    b->Synchronize();
    return rig;
  };
  const auto all = run({});
  EXPECT_THAT(all->world().Races(), IsEmpty());
  EXPECT_EQ(all->world().NumWaits(), 3 * kRounds + 1);
  const std::vector<WaitName> needed = all->world().NeededWaits();
  ASSERT_THAT(needed, SizeIs(2 * kRounds - 1));
  EXPECT_EQ(needed[0].Text(), "rank 0: s0 'vector.Fill' waits for s1 'vector.AddTo', 0");
  for (const WaitName& wait : needed) {
    const auto without = run(wait);
    EXPECT_EQ(without->world().NumWaits(), 3 * kRounds);
    // The last one orders nothing but what the host waits for itself.
    const bool last = wait == needed[kRounds - 1];
    EXPECT_EQ(without->world().Races().empty(), last) << wait.Text();
  }
}

TEST(AsyncDeviceTest, AFullQueueIsWaitedFor) {
  Rig rig({.queue_capacity = 4});
  const auto a = rig.NewStream(), b = rig.NewStream();
  const auto event = rig.device().CreateEvent();
  const Tensor x = rig.NewTensor(), one = rig.NewTensor();
  rig.Fill(*a, one, 1);
  rig.Fill(*a, x, 0);
  for (int i = 0; i < 100; ++i) {
    rig.Add(*a, x, one);
    event->Record(*a);
    b->Wait(*event);
    rig.Add(*b, x, one);
    event->Record(*b);
    a->Wait(*event);
    EXPECT_LE(500 - rig.world().Order().first, 500);
  }
  EXPECT_GE(rig.world().Order().first, 600 - 8) << "at most four calls are left on each stream";
  a->Synchronize();
  EXPECT_EQ(Rig::First(x), 200);
  EXPECT_THAT(rig.world().Races(), IsEmpty());
}

TEST(AsyncDeviceTest, MarksAreMadeInStreamOrder) {
  Rig rig;
  const auto stream = rig.NewStream();
  auto ring = rig.device().CreateMarkRing(4, base::Clock::Real());
  ring->Mark(*stream);
  EXPECT_EQ(ring->Newest(), 0);
  stream->Synchronize();
  EXPECT_EQ(ring->Newest(), 1);
  ring->Mark(*stream);
  ring.reset();
  stream->Synchronize();
}

TEST(AsyncDeviceTest, SpansAreTimedAsTheStreamComesToThem) {
  Rig rig;
  const auto stream = rig.NewStream();
  base::ManualClock clock;
  auto spans = rig.device().CreateSpanClock(2, &clock);
  const auto ticket = spans->Begin(*stream, 5);
  EXPECT_TRUE(ticket.has_value());
  static_cast<AsyncStream&>(*stream).Enqueue(
      {.run = [&] { clock.Advance(std::chrono::milliseconds(3)); }});
  clock.Advance(std::chrono::seconds(1));  // the host's time, while all of it is queued
  spans->End(*stream, ticket.value_or(0));
  const std::vector<SpanClock::Span> read = spans->Read();
  ASSERT_THAT(read, SizeIs(1));
  EXPECT_EQ(read[0].label, 5);
  EXPECT_NEAR(read[0].end - read[0].begin, 0.003, 1e-9);
  EXPECT_TRUE(spans->Begin(*stream, 6).has_value());
  spans.reset();
  stream->Synchronize();
}

TEST(AsyncDeviceTest, MemoryThatIsFreedTooEarlyLivesOnAndIsReported) {
  Rig rig;
  const auto stream = rig.NewStream();
  const auto fill = [&](DeviceBuffer& buffer) {
    rig.Fill(*stream, {buffer.data(), DType::kF64, {1}}, 1);
  };
  auto waited = rig.device().Allocate(8, MemoryKind::kDevice);
  fill(*waited);
  stream->Synchronize();
  waited.reset();
  EXPECT_THAT(rig.world().EarlyFrees(), IsEmpty());
  auto queued = rig.device().Allocate(8, MemoryKind::kDevice);
  fill(*queued);
  queued.reset();
  EXPECT_THAT(rig.world().EarlyFrees(), ElementsAre(HasSubstr("before 'to' of vector.Fill on s0")));
  stream->Synchronize();
}

// Two hosts, each with a device and two streams.
uint64_t OrderOf(uint64_t seed) {
  AsyncWorld world({.seed = seed});
  world.Run(2, [&](int host) {
    const auto cpu = cpu::MakeCpuBackend({}).value();
    const auto backend = MakeAsyncBackend({.cpu = cpu.get(), .world = &world, .rank = host});
    Device& device = backend->device();
    const auto x = device.Allocate(16, MemoryKind::kDevice);
    const auto a = device.CreateStream(StreamPriority::kLow);
    const auto b = device.CreateStream(StreamPriority::kLow);
    for (int i = 0; i < 20; ++i) {
      // Hosts that differ in speed must not matter.
      if (i % 7 == host) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      for (int n = 0; n < 3; ++n) {
        backend->vector().Fill(*a, {x->data(), DType::kF64, {1}}, n);
        device.Zero(*b, static_cast<char*>(x->data()) + 8, 8);
      }
      (i % 2 == host ? a : b)->Synchronize();
    }
    a->Synchronize();
    b->Synchronize();
  });
  EXPECT_EQ(world.Order().first, 2 * 2 * 60);
  EXPECT_THAT(world.Races(), IsEmpty());
  return world.Order().second;
}

TEST(AsyncWorldTest, ASeedGivesOneOrder) {
  std::set<uint64_t> orders;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const uint64_t order = OrderOf(seed);
    EXPECT_EQ(OrderOf(seed), order);
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 8U);
}

// It would wait for ever if calls ran only while the host waits in the world.
TEST(AsyncWorldTest, AThreadThatIsNoHostIsServed) {
  AsyncWorld world({});
  world.Run(1, [&](int) {
    const auto cpu = cpu::MakeCpuBackend({}).value();
    const auto backend = MakeAsyncBackend({.cpu = cpu.get(), .world = &world});
    const auto x = backend->device().Allocate(8, MemoryKind::kDevice);
    std::thread other([&] {
      const auto stream = backend->device().CreateStream(StreamPriority::kLow);
      backend->vector().Fill(*stream, {x->data(), DType::kF64, {1}}, 3);
      stream->Synchronize();
    });
    other.join();
    EXPECT_EQ(*static_cast<double*>(x->data()), 3);
  });
}

}  // namespace
}  // namespace mt::kernels::async
