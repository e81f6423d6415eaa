// How the waits of a link between devices end that write each other's memory: by an abort of their
// end from another thread, whatever is still on its way, or because they take too long.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/layout/mesh.h"
#include "kernels/async/async_device.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/worker/async/async_group.h"
#include "worker/parallel/pipeline/edges.h"
#include "worker/parallel/pipeline/peer_link.h"

namespace mt::parallel {
namespace {

using kernels::DType;
using kernels::MemoryKind;
using kernels::StreamPriority;
using kernels::async::AsyncDevice;
using kernels::async::AsyncWorld;
using kernels::async::Sharing;
using testing::HasSubstr;

constexpr int kSlots = 3;

// A stage of two, with a buffer of 8 bytes a slot.
struct Stage {
  Stage(AsyncWorld* world, kernels::Device* cpu, int rank)
      : device({.cpu = cpu, .world = world, .rank = rank, .sharing = Sharing::kAll}),
        stream(device.CreateStream(StreamPriority::kLow)),
        buffer(device.Allocate(kSlots * sizeof(double), MemoryKind::kShared)) {}
  Parcel At(int slot) const {
    return {0, slot, {static_cast<double*>(buffer->data()) + slot, DType::kF64, {1}}};
  }

  AsyncDevice device;
  const std::unique_ptr<kernels::Stream> stream;
  const std::unique_ptr<kernels::DeviceBuffer> buffer;
  StageLinks links;
};

// Two stages whose activations go from the first to the second. Each Run is a time in which one
// thread does something for each stage.
class Pair {
 public:
  explicit Pair(uint64_t seed) : world_({.seed = seed}) {
    Run([&](int rank) {
      links(rank) = CreateLinks(&host_, layout::Mesh::Create({.pp = 2}).value(), rank, 1,
                                {.device = &(rank == 0 ? a : b).device, .on_device = &device_})
                        .value();
    });
  }
  void Run(const std::function<void(int rank)>& body) { world_.Run(2, body); }
  // Names as many parcels as the receiver is to have, in turn in the slots; the first `granted` can
  // come before any is released.
  void Begin(int num_parcels) {
    std::vector<Parcel> parcels;
    for (int i = 0; i < num_parcels; ++i) parcels.push_back(b.At(i % kSlots));
    Run([&](int rank) {
      const Status status =
          rank == 0 ? sender().Begin(*a.stream, {}) : receiver().Begin(*b.stream, parcels, {});
      EXPECT_TRUE(status.ok()) << status;
      (rank == 0 ? a : b).stream->Synchronize();  // the first slots are granted
    });
  }
  void Send(int slot) {
    a.device.Zero(*a.stream, a.At(slot).tensor.data, sizeof(double));
    EXPECT_TRUE(sender().Send(*a.stream, a.At(slot)).ok());
  }
  Sender& sender() { return *a.links.activation_out; }
  Receiver& receiver() { return *b.links.activation_in; }

 private:
  StageLinks& links(int rank) { return (rank == 0 ? a : b).links; }

  AsyncWorld world_;
  const std::unique_ptr<kernels::Backend> cpu_ = kernels::cpu::MakeCpuBackend({}).value();
  comm::AsyncHub host_{{.world = &world_, .on_host = true, .config = {}}};
  comm::AsyncHub device_{{.world = &world_, .send_window = 0, .config = {}}};

 public:
  Stage a{&world_, &cpu_->device(), 0};
  Stage b{&world_, &cpu_->device(), 1};
};

TEST(PeerAbortTest, AWaitForASenderThatNeverComesIsNamed) {
  Pair pair(0);
  pair.Begin(1);
  EXPECT_TRUE(pair.receiver().WaitReady(*pair.b.stream, 0, 0).ok());
  try {
    pair.b.stream->Synchronize();
    FAIL() << "no deadlock";
  } catch (const kernels::DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("waits for word 0 of rank 1 to be 1, which is 0"));
  }
}

// Nobody aborts. The watch's looks are made here, from another thread than the one that waits.
base::MonotonicTime In(std::chrono::hours hours) { return base::Clock::Real()->Now() + hours; }

TEST(PeerDeadlineTest, EndsAWaitForASenderThatIsStuck) {
  Pair pair(0);
  pair.Begin(kSlots);
  auto& receiver = dynamic_cast<PeerReceiver&>(pair.receiver());
  pair.Send(0);
  EXPECT_TRUE(receiver.WaitReady(*pair.b.stream, 0, 0).ok());
  pair.Run([&](int rank) {
    if (rank == 1) pair.b.stream->Synchronize();
  });
  receiver.Look(In(std::chrono::hours(1)));
  EXPECT_TRUE(receiver.status().ok()) << "the parcel came: " << receiver.status();
  EXPECT_TRUE(receiver.WaitReady(*pair.b.stream, 0, 1).ok());
  receiver.Look(In(std::chrono::hours(0)));
  EXPECT_TRUE(receiver.status().ok()) << receiver.status();
  pair.Run([&](int rank) {
    if (rank == 0) return receiver.Look(In(std::chrono::hours(1)));
    pair.b.stream->Synchronize();
  });
  EXPECT_EQ(receiver.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(base::Message(receiver.status()),
              HasSubstr("link pp-act/0-1: within 600 s parcel 2 did not come, only 1 before it: "
                        "rank 0, or one that it waits for, is stuck"));
  EXPECT_EQ(receiver.WaitReady(*pair.b.stream, 0, 2), receiver.status());
}

TEST(PeerDeadlineTest, EndsAWaitForAReceiverThatIsStuck) {
  Pair pair(0);
  pair.Begin(kSlots + 1);
  auto& sender = dynamic_cast<PeerSender&>(pair.sender());
  for (int i = 0; i < kSlots + 1; ++i) pair.Send(i % kSlots);
  pair.Run([&](int rank) {
    if (rank == 1) return sender.Look(In(std::chrono::hours(1)));
    (void)sender.WaitSent(*pair.a.stream, 0, 0);
    pair.a.stream->Synchronize();
  });
  EXPECT_EQ(sender.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(base::Message(sender.status()),
              HasSubstr("no slot was free for parcel 4, only for 3 before it: rank 1,"));
}

// The host is far ahead of the device: parcels come, each within the deadline, but not all of those
// that are awaited.
TEST(PeerDeadlineTest, ALinkThatGoesOnIsNotLate) {
  Pair pair(0);
  pair.Begin(kSlots);
  auto& receiver = dynamic_cast<PeerReceiver&>(pair.receiver());
  for (int i = 0; i < kSlots; ++i) EXPECT_TRUE(receiver.WaitReady(*pair.b.stream, 0, i).ok());
  const base::MonotonicTime begin = base::Clock::Real()->Now();
  const auto look = [&](int minutes) {
    pair.Run([&](int rank) {
      if (rank == 1) receiver.Look(begin + std::chrono::minutes(minutes));
    });
    return receiver.status();
  };
  const auto send = [&](int slot) {
    pair.Send(slot);
    pair.Run([&](int rank) {
      if (rank != 0) return;
      EXPECT_TRUE(pair.sender().WaitSent(*pair.a.stream, 0, slot).ok());
      pair.a.stream->Synchronize();
    });
  };
  EXPECT_TRUE(look(9).ok());
  send(0);
  EXPECT_TRUE(look(11).ok()) << "one came meanwhile";
  EXPECT_TRUE(look(20).ok());
  send(1);
  EXPECT_TRUE(look(22).ok()) << "another came";
  EXPECT_TRUE(look(31).ok());
  pair.Run([&](int rank) {
    if (rank == 0) return receiver.Look(begin + std::chrono::minutes(33));
    pair.b.stream->Synchronize();
  });
  EXPECT_EQ(receiver.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(base::Message(receiver.status()),
              HasSubstr("parcel 3 did not come, only 2 before it: rank 0,"));
}

// The first stage's thread is the one that aborts.
TEST(PeerAbortTest, AbortOfTheReceiverEndsItsWaits) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Pair pair(seed);
    pair.Begin(1);
    EXPECT_TRUE(pair.receiver().WaitReady(*pair.b.stream, 0, 0).ok());
    pair.Run([&](int rank) {
      if (rank == 0) return pair.receiver().Abort("told to leave");
      pair.b.stream->Synchronize();
    });
    EXPECT_EQ(pair.receiver().status().code(), absl::StatusCode::kAborted);
    EXPECT_EQ(pair.receiver().WaitReady(*pair.b.stream, 0, 0), pair.receiver().status());
  }
}

// The fourth parcel waits for the slot of the first, which nobody releases.
TEST(PeerAbortTest, AbortOfTheSenderEndsItsWaits) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Pair pair(seed);
    pair.Begin(kSlots + 1);
    for (int i = 0; i < kSlots; ++i) pair.Send(i);
    pair.Send(0);
    pair.Run([&](int rank) {
      if (rank == 1) return pair.sender().Abort("told to leave");
      (void)pair.sender().WaitSent(*pair.a.stream, 0, 0);
      pair.a.stream->Synchronize();
    });
    EXPECT_EQ(pair.sender().status().code(), absl::StatusCode::kAborted);
  }
}

// What is on its way as a link breaks must not take its end back: the receiver expects three
// parcels, of which one has been sent.
TEST(PeerAbortTest, ParcelsOnTheirWayDoNotUndoAnAbort) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Pair pair(seed);
    pair.Begin(kSlots);
    pair.Send(0);
    for (int i = 0; i < kSlots; ++i)
      EXPECT_TRUE(pair.receiver().WaitReady(*pair.b.stream, 0, i).ok());
    pair.Run([&](int rank) {
      if (rank == 0) {
        pair.sender().Abort("the peer has left");
      } else {
        pair.receiver().Abort("told to leave");
        pair.b.stream->Synchronize();
      }
    });
  }
}

// A sender that dies breaks nothing, but what it had enqueued may still be done.
TEST(PeerAbortTest, ParcelsOfADeadSenderUndoAnAbortUntilTheNextLook) {
  int undone = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Pair pair(seed);
    pair.Begin(kSlots);
    pair.Send(0);
    for (int i = 0; i < kSlots; ++i)
      EXPECT_TRUE(pair.receiver().WaitReady(*pair.b.stream, 0, i).ok());
    pair.Run([&](int rank) {
      if (rank == 1) return pair.receiver().Abort("the sender has died");
      (void)pair.sender().WaitSent(*pair.a.stream, 0, 0);
      pair.a.stream->Synchronize();  // the last that it does
    });
    const auto ends = [&](bool looked) {
      try {
        pair.Run([&](int rank) {
          if (rank == 0) return;
          if (looked) dynamic_cast<PeerReceiver&>(pair.receiver()).Look(In(std::chrono::hours(0)));
          pair.b.stream->Synchronize();
        });
      } catch (const kernels::DeviceError&) {
        return false;
      }
      return true;
    };
    if (seed % 2 == 0) {
      EXPECT_TRUE(ends(true));
    } else if (!ends(false)) {
      ++undone;
    }
  }
  EXPECT_GT(undone, 0) << "no order had such parcels";
}

// The same for slots: the sender has more parcels than the receiver has said to be free.
TEST(PeerAbortTest, SlotsThatAreReleasedDoNotUndoAnAbort) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    Pair pair(seed);
    pair.Begin(kSlots + 2);
    for (int i = 0; i < kSlots + 2; ++i) pair.Send(i % kSlots);
    EXPECT_TRUE(pair.receiver().WaitReady(*pair.b.stream, 0, 0).ok());
    pair.receiver().Release(*pair.b.stream, 0, 0);
    pair.Run([&](int rank) {
      if (rank == 1) {
        pair.receiver().Abort("the peer has left");
      } else {
        pair.sender().Abort("told to leave");
        (void)pair.sender().WaitSent(*pair.a.stream, 0, 1);
        pair.a.stream->Synchronize();
      }
    });
  }
}

}  // namespace
}  // namespace mt::parallel
