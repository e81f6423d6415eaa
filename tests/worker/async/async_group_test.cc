// Groups over asynchronous devices: the bits of groups of threads, deadlocks that are reported,
// races around collectives.
#include "tests/worker/async/async_group.h"

#include <cstring>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/async/async_device.h"
#include "kernels/core/random.h"
#include "kernels/cpu/cpu_backend.h"
#include "worker/comm/threads/hub.h"

namespace mt::comm {
namespace {

using kernels::DType;
using kernels::MemoryKind;
using kernels::Stream;
using kernels::StreamPriority;
using kernels::async::AsyncDevice;
using kernels::async::AsyncWorld;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using Bytes = std::vector<std::byte>;

// Ranks of a world, each with a device and the group "g" of all.
class Rig {
 public:
  struct Member {
    AsyncDevice& device;
    ProcessGroup& group;
    std::unique_ptr<Stream> NewStream() { return device.CreateStream(StreamPriority::kHigh); }
  };
  explicit Rig(int size, AsyncWorld::Options options = {}, int send_window = 16)
      : size_(size),
        world_(std::move(options)),
        hub_({.world = &world_, .send_window = send_window}) {}

  AsyncWorld& world() { return world_; }
  void Run(const std::function<void(Member&)>& body) {
    std::vector<int> members;
    for (int r = 0; r < size_; ++r) members.push_back(r);
    world_.Run(size_, [&](int rank) {
      const auto cpu = kernels::cpu::MakeCpuBackend({}).value();
      AsyncDevice device({.cpu = &cpu->device(), .world = &world_, .rank = rank});
      const auto group = hub_.Create({.name = "g", .members = members, .my_index = rank}).value();
      Member member{.device = device, .group = *group};
      body(member);
    });
  }
  // What ends the run.
  std::string ErrorOf(const std::function<void(Member&)>& body) {
    try {
      Run(body);
    } catch (const kernels::DeviceError& error) {
      return error.what();
    }
    return "";
  }

 private:
  const int size_;
  AsyncWorld world_;
  AsyncHub hub_;
};

// Finite values of any type: small integers' bit patterns would hide the order of sums.
Bytes Values(DType dtype, int64_t count, int rank) {
  Bytes data(static_cast<size_t>(count * kernels::SizeOf(dtype)));
  uint64_t state = static_cast<uint64_t>(rank) * 7919 + 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const double value = static_cast<double>(state >> 40U) * 0x1p-20 - 8;
    std::byte* const at = data.data() + i * kernels::SizeOf(dtype);
    const auto f32 = static_cast<float>(value);
    if (dtype == DType::kF64) std::memcpy(at, &value, 8);
    if (dtype == DType::kF32) std::memcpy(at, &f32, 4);
    if (dtype == DType::kBf16) std::memcpy(at, reinterpret_cast<const char*>(&f32) + 2, 2);
    if (dtype == DType::kI32) std::memcpy(at, &state, 4);
  }
  return data;
}

// Every operation in turn on one stream; returns all outputs, one behind the other.
Bytes AllCalls(ProcessGroup& group, Stream& stream, const std::function<void()>& synchronize,
               DType dtype) {
  constexpr int64_t kCount = 37;
  const int n = group.size();
  const int64_t size = kernels::SizeOf(dtype);
  std::vector<Bytes> outs;
  outs.reserve(16);
  const auto out = [&](int64_t count) {
    return outs.emplace_back(static_cast<size_t>(count * size)).data();
  };
  const Bytes in = Values(dtype, kCount * n, group.rank());
  Bytes in_place = in;
  EXPECT_TRUE(group.Barrier(stream).ok());
  EXPECT_TRUE(group.AllReduce(stream, in.data(), out(kCount), kCount, dtype, ReduceOp::kSum).ok());
  EXPECT_TRUE(group.AllReduce(stream, in.data(), out(kCount), kCount, dtype, ReduceOp::kMax).ok());
  EXPECT_TRUE(
      group.ReduceScatter(stream, in.data(), out(kCount), kCount, dtype, ReduceOp::kSum).ok());
  EXPECT_TRUE(group.AllGather(stream, in.data(), out(kCount * n), kCount, dtype).ok());
  EXPECT_TRUE(group.AllToAll(stream, in.data(), out(kCount * n), kCount, dtype).ok());
  std::byte* const own = in_place.data() + group.rank() * kCount * size;
  EXPECT_TRUE(
      group.ReduceScatter(stream, in_place.data(), own, kCount, dtype, ReduceOp::kSum).ok());
  EXPECT_TRUE(group.AllGather(stream, own, in_place.data(), kCount, dtype).ok());
  EXPECT_TRUE(group.Broadcast(stream, in_place.data(), 5, dtype, n - 1).ok());
  const int next = (group.rank() + 1) % n, before = (group.rank() + n - 1) % n;
  // Even ranks send first, so that no buffers are needed; the last of an odd ring waits.
  for (const bool sends : {group.rank() % 2 == 0, group.rank() % 2 != 0}) {
    EXPECT_TRUE((sends ? group.Send(stream, in.data(), kCount, dtype, next, 3)
                       : group.Recv(stream, out(kCount), kCount, dtype, before, 3))
                    .ok());
  }
  synchronize();
  Bytes all = in_place;
  for (const Bytes& part : outs) all.insert(all.end(), part.begin(), part.end());
  return all;
}

class BitsTest : public testing::TestWithParam<std::tuple<int, DType, int>> {};

TEST_P(BitsTest, AreThoseOfThreads) {
  const auto [size, dtype, window] = GetParam();
  std::vector<Bytes> expected(static_cast<size_t>(size)), actual(static_cast<size_t>(size));
  {
    ThreadsHub hub(CommConfig{});
    std::vector<int> members;
    for (int r = 0; r < size; ++r) members.push_back(r);
    std::vector<std::thread> threads;
    for (int r = 0; r < size; ++r) {
      threads.emplace_back([&, r, of = dtype] {
        const auto cpu = kernels::cpu::MakeCpuBackend({}).value();
        const auto stream = cpu->device().CreateStream(StreamPriority::kLow);
        const auto group = hub.Create({.name = "g", .members = members, .my_index = r}).value();
        expected[static_cast<size_t>(r)] = AllCalls(
            *group, *stream, [] {}, of);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  for (uint64_t seed = 0; seed < 5; ++seed) {
    Rig rig(size, {.seed = seed}, window);
    rig.Run([&, of = dtype](Rig::Member& member) {
      const auto stream = member.NewStream();
      actual[static_cast<size_t>(member.group.rank())] = AllCalls(
          member.group, *stream, [&] { stream->Synchronize(); }, of);
    });
    EXPECT_EQ(actual, expected) << seed;
    EXPECT_THAT(rig.world().Races(), IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, BitsTest,
                         testing::Combine(testing::Values(2, 4),
                                          testing::Values(DType::kF32, DType::kF64, DType::kBf16,
                                                          DType::kI32),
                                          testing::Values(0, 16)),
                         [](const auto& instance) {
                           return fmt::format("{}ranks_{}_window{}", std::get<0>(instance.param),
                                              kernels::Name(std::get<1>(instance.param)),
                                              std::get<2>(instance.param));
                         });

TEST(AsyncGroupTest, AMemberThatDoesNotComeIsADeadlock) {
  Rig rig(3);
  std::atomic<int> errors = 0;
  const std::string error = rig.ErrorOf([&](Rig::Member& member) {
    if (member.group.rank() == 1) return;
    const auto stream = member.NewStream(), other = member.NewStream();
    const auto event = member.device.CreateEvent();
    float x = 0;
    EXPECT_TRUE(member.group.AllReduce(*stream, &x, &x, 1, DType::kF32, ReduceOp::kSum).ok());
    event->Record(*stream);
    other->Wait(*event);
    member.device.Zero(*other, &x, sizeof(x));
    try {
      other->Synchronize();
    } catch (const kernels::DeviceError&) {
      ++errors;
      throw;
    }
  });
  EXPECT_EQ(errors, 2);
  EXPECT_THAT(error,
              AllOf(HasSubstr("deadlock"), HasSubstr("rank 0's host waits for the end of s1"),
                    HasSubstr("rank 0 s0: 'all_reduce g' is at all_reduce sum of 1 f32 of "
                              "group g, without member 1"),
                    HasSubstr("rank 2 s1: '' waits for s0 'all_reduce g'")));
}

TEST(AsyncGroupTest, OppositeOrdersAreADeadlock) {
  Rig rig(2, {}, /*send_window=*/0);
  const std::string error = rig.ErrorOf([&](Rig::Member& member) {
    const auto stream = member.NewStream();
    float x = 0, y = 0;
    const int peer = 1 - member.group.rank();
    EXPECT_TRUE(member.group.Send(*stream, &x, 1, DType::kF32, peer, 0).ok());
    EXPECT_TRUE(member.group.Recv(*stream, &y, 1, DType::kF32, peer, 0).ok());
    stream->Synchronize();
  });
  EXPECT_THAT(error, AllOf(HasSubstr("deadlock"), HasSubstr("send g")));
}

TEST(AsyncGroupTest, APollThatNeverEndsIsADeadlock) {
  Rig rig(2);
  const std::string error = rig.ErrorOf([&](Rig::Member& member) {
    if (member.group.rank() == 1) return;
    const auto stream = member.NewStream();
    const auto event = member.device.CreateEvent();
    EXPECT_TRUE(member.group.Barrier(*stream).ok());
    event->Record(*stream);
    while (!event->IsDone()) continue;
  });
  EXPECT_THAT(error, HasSubstr("deadlock"));
}

TEST(AsyncGroupTest, CallsThatDifferFailBoth) {
  Rig rig(2);
  const std::string error = rig.ErrorOf([&](Rig::Member& member) {
    const auto stream = member.NewStream();
    float x[2] = {};
    EXPECT_TRUE(
        member.group.AllReduce(*stream, x, x, 1 + member.group.rank(), DType::kF32, ReduceOp::kSum)
            .ok());
    stream->Synchronize();
  });
  EXPECT_THAT(error, AllOf(HasSubstr("sum of 1 f32"), HasSubstr("sum of 2 f32")));
}

TEST(AsyncGroupTest, ABrokenGroupLetsItsStreamsGoOn) {
  Rig rig(2);
  rig.Run([&](Rig::Member& member) {
    const auto stream = member.NewStream();
    if (member.group.rank() == 1) {
      member.group.Abort("pulled the plug");
      EXPECT_EQ(member.group.Barrier(*stream).code(), absl::StatusCode::kAborted);
      return;
    }
    static_cast<void>(member.group.Barrier(*stream));
    stream->Synchronize();
    EXPECT_EQ(member.group.Barrier(*stream).code(), absl::StatusCode::kUnavailable);
  });
}

TEST(AsyncGroupTest, ACollectiveRacesLikeAnyCall) {
  Rig rig(2);
  rig.Run([&](Rig::Member& member) {
    const auto stream = member.NewStream(), other = member.NewStream();
    const auto event = member.device.CreateEvent();
    const auto x = member.device.Allocate(16, MemoryKind::kDevice);
    member.device.Zero(*stream, x->data(), 16);
    if (member.group.rank() == 0) event->Record(*stream);
    EXPECT_TRUE(
        member.group.AllReduce(*stream, x->data(), x->data(), 4, DType::kF32, ReduceOp::kSum).ok());
    if (member.group.rank() == 1) event->Record(*stream);
    other->Wait(*event);
    member.device.Zero(*other, static_cast<char*>(x->data()) + 12, 4);
    stream->Synchronize();
    other->Synchronize();
  });
  const std::vector<std::string> races = rig.world().Races();
  ASSERT_THAT(races, testing::Not(IsEmpty()));
  for (const std::string& race : races) {
    EXPECT_THAT(race, AllOf(HasSubstr("rank 0"), HasSubstr("of zero on s1"),
                            HasSubstr("of all_reduce g on s0")));
  }
}

TEST(AsyncGroupTest, CallsOfAGroupMustHaveAnOrder) {
  Rig rig(2);
  rig.Run([&](Rig::Member& member) {
    const auto stream = member.NewStream(), other = member.NewStream();
    EXPECT_TRUE(member.group.Barrier(*stream).ok());
    if (member.group.rank() == 1) stream->Synchronize();
    EXPECT_TRUE(member.group.Barrier(*other).ok());
    stream->Synchronize();
    other->Synchronize();
  });
  EXPECT_THAT(rig.world().Races(),
              testing::ElementsAre("rank 0: 'group' of barrier g on s1 (writes) has no order with "
                                   "'group' of barrier g on s0 (writes)"));
}

// Rank 1 has the gathered bytes, and rank 0 knows it, but rank 0 may still be writing its own.
TEST(AsyncGroupTest, TheEndOfOneMemberIsNotThatOfAnother) {
  Rig rig(2);
  rig.Run([&](Rig::Member& member) {
    const auto stream = member.NewStream(), other = member.NewStream();
    const auto event = member.device.CreateEvent();
    const auto x = member.device.Allocate(8, MemoryKind::kDevice);
    auto* const data = static_cast<float*>(x->data());
    EXPECT_TRUE(
        member.group.AllGather(*stream, data + member.group.rank(), data, 1, DType::kF32).ok());
    if (member.group.rank() == 1) {
      event->Record(*stream);
      other->Wait(*event);
    }
    EXPECT_TRUE(member.group.Barrier(*other).ok());
    member.device.Zero(*other, data, 8);
    stream->Synchronize();
    other->Synchronize();
  });
  const std::vector<std::string> races = rig.world().Races();
  ASSERT_THAT(races, testing::Not(IsEmpty()));
  for (const std::string& race : races) EXPECT_THAT(race, HasSubstr("rank 0"));
}

// A message carries its sender's order, and no order leads from a receipt back to the sender.
TEST(AsyncGroupTest, TheWindowOfSendsGivesNoOrder) {
  Rig rig(2, {}, /*send_window=*/1);
  rig.Run([&](Rig::Member& member) {
    const auto stream = member.NewStream(), other = member.NewStream();
    float x = 0;
    for (int i = 0; i < 3; ++i) {
      const Status sent =
          member.group.rank() == 0
              ? member.group.Send(*stream, &x, 1, DType::kF32, 1, 0)
              : member.group.Recv(i == 2 ? *other : *stream, &x, 1, DType::kF32, 0, 0);
      EXPECT_TRUE(sent.ok());
    }
    stream->Synchronize();
    other->Synchronize();
  });
  EXPECT_THAT(rig.world().Races(),
              testing::ElementsAre(HasSubstr("'group' of recv g on s1"),
                                   HasSubstr("'out' of recv g on s1 (writes) has no order with "
                                             "'out' of recv g on s0 (writes)")));
}

}  // namespace
}  // namespace mt::comm
