// Words that streams of asynchronous devices store and wait for, and memory that they share: what a
// word orders, what its loss brings about, and how a device refuses.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/async/async_device.h"
#include "kernels/cpu/cpu_backend.h"

namespace mt::kernels::async {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// One rank's device with a stream, four words, zero, and eight bytes of data.
struct Rank {
  Rank(AsyncWorld* world, Device* cpu, int rank)
      : device({.cpu = cpu, .world = world, .rank = rank, .sharing = Sharing::kAll}),
        stream(device.CreateStream(StreamPriority::kLow)),
        words(device.Allocate(4 * sizeof(uint32_t), MemoryKind::kShared)),
        data(device.Allocate(8, MemoryKind::kShared)) {
    device.Zero(*stream, words->data(), words->bytes());
    stream->Synchronize();
  }
  uint32_t* word(int i = 0) const { return static_cast<uint32_t*>(words->data()) + i; }
  void Touch(DeviceBuffer& buffer) { device.Zero(*stream, buffer.data(), buffer.bytes()); }

  AsyncDevice device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<DeviceBuffer> words, data;
};

// Two ranks whose hosts are one thread.
struct Two {
  explicit Two(AsyncWorld::Options options = {})
      : world(std::move(options)),
        cpu(cpu::MakeCpuBackend({}).value()),
        a(&world, &cpu->device(), 0),
        b(&world, &cpu->device(), 1) {}
  void Finish() {
    b.stream->Synchronize();
    a.stream->Synchronize();
  }

  AsyncWorld world;
  std::unique_ptr<Backend> cpu;
  Rank a, b;
};

TEST(AsyncWordTest, AWaitIsOverWhenTheWordHasReachedTheValueAndTakesItsOrder) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Two two({.seed = seed});
    two.b.stream->WaitValue(two.b.word(), 2);
    two.b.Touch(*two.b.data);
    two.a.Touch(*two.b.data);  // the peer's memory
    two.a.stream->WriteValue(two.b.word(), 1);
    two.a.Touch(*two.b.data);
    two.a.stream->WriteValue(two.b.word(), 2);
    two.Finish();
    EXPECT_THAT(two.world.Races(), IsEmpty()) << seed;
    EXPECT_EQ(*two.b.word(), 2U);
  }
}

// Whatever the word is by the time of the wait: what the later store orders is no excuse.
TEST(AsyncWordTest, AWaitOrdersWhatIsBeforeTheFirstStoreThatSatisfiesIt) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Two two({.seed = seed});
    two.b.stream->WaitValue(two.b.word(), 1);
    two.b.Touch(*two.b.data);
    two.a.stream->WriteValue(two.b.word(), 1);
    two.a.Touch(*two.b.data);
    two.a.stream->WriteValue(two.b.word(), 2);
    two.Finish();
    ASSERT_THAT(two.world.Races(), SizeIs(1)) << seed;
    EXPECT_THAT(two.world.Races()[0],
                AllOf(HasSubstr("rank 1: "), HasSubstr("zero on s0 of rank 0 (writes)"),
                      HasSubstr("zero on s0 (writes)")));
  }
}

TEST(AsyncWordTest, ValuesAreCyclic) {
  Two two;
  two.a.stream->WriteValue(two.a.word(), 0xFFFFFFFE);
  two.a.stream->WaitValue(two.a.word(), 0xFFFFFFFE);
  two.b.stream->WaitValue(two.a.word(), 1);  // waits, though 0xFFFFFFFE is more
  two.b.Touch(*two.b.data);
  two.a.stream->Synchronize();
  const int64_t before = two.world.Order().first;
  two.a.stream->WriteValue(two.a.word(), 3);
  two.b.stream->Synchronize();
  EXPECT_EQ(two.world.Order().first, before + 3);
}

TEST(AsyncWordTest, AWaitForAStoreThatNeverComesIsNamed) {
  Two two;
  two.a.stream->WriteValue(two.b.word(3), 4);
  two.b.stream->WaitValue(two.b.word(3), 4);
  two.b.stream->WaitValue(two.b.word(1), 7);
  two.b.stream->WaitValue(two.b.word(3), 5);
  try {
    two.b.stream->Synchronize();
    FAIL() << "no deadlock";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 s0: 'wait' waits for word 1 of rank 1 to be 7, "
                                        "which is 0, 2 calls queued"));
  }
}

// Rounds in which b waits for a, and a for b, but for the first.
std::unique_ptr<Two> PlayRounds(std::optional<WaitName> drop, std::string* deadlock) {
  auto two = std::make_unique<Two>(AsyncWorld::Options{.drop = std::move(drop)});
  constexpr uint32_t kRounds = 3;
  for (uint32_t i = 1; i <= kRounds; ++i) {
    if (i > 1) two->a.stream->WaitValue(two->a.word(), i);
    two->a.Touch(*two->b.data);
    two->a.stream->WriteValue(two->b.word(), 2 * i - 1);  // nobody waits for it
    two->a.stream->WriteValue(two->b.word(), 2 * i);
    two->b.stream->WaitValue(two->b.word(), 2 * i);
    two->b.Touch(*two->b.data);
    two->b.stream->WriteValue(two->a.word(), i + 1);  // nobody waits for the last one
  }
  try {
    two->Finish();
  } catch (const DeviceError& error) {
    *deadlock = error.what();
  }
  return two;
}

TEST(AsyncWordTest, WaitsAndStoresThatAreLeftOutAreFound) {
  std::string deadlock;
  const auto all = PlayRounds({}, &deadlock);
  EXPECT_THAT(all->world.Races(), IsEmpty());
  EXPECT_THAT(all->world.EarlyFrees(), IsEmpty());
  EXPECT_EQ(deadlock, "");
  std::vector<std::string> names;
  for (const WaitName& name : all->world.NeededWaits()) {
    names.push_back(name.Text());
    std::string stuck;
    const auto without = PlayRounds(name, &stuck);
    const bool stores = name.site.find(" stores ") != std::string::npos;
    EXPECT_EQ(!stuck.empty(), stores) << name.Text();
    EXPECT_EQ(without->world.Races().empty(), stores) << name.Text();
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre(
                         "rank 0: s0 'zero' waits for word 0 of rank 0 to be 2, 0",
                         "rank 0: s0 'zero' waits for word 0 of rank 0 to be 3, 0",
                         "rank 0: s0 'zero' stores 2, 0", "rank 0: s0 'zero' stores 4, 0",
                         "rank 0: s0 'zero' stores 6, 0",
                         "rank 1: s0 'zero' waits for word 0 of rank 1 to be 2, 0",
                         "rank 1: s0 'zero' waits for word 0 of rank 1 to be 4, 0",
                         "rank 1: s0 'zero' waits for word 0 of rank 1 to be 6, 0",
                         "rank 1: s0 'zero' stores 2, 0", "rank 1: s0 'zero' stores 3, 0"));
}

TEST(AsyncWordTest, AWordThatIsFreedTooEarlyIsReported) {
  Two two;
  two.a.stream->WriteValue(two.b.word(), 1);
  two.b.words.reset();
  EXPECT_THAT(two.world.EarlyFrees(),
              ElementsAre("rank 1: freed before 'word' of store on s0 of rank 0 has run"));
  two.Finish();
}

TEST(AsyncPeerMemoryTest, MapsWhatAnotherDeviceOfTheWorldNames) {
  Two two;
  EXPECT_NE(two.a.device.Uuid(), two.b.device.Uuid());
  PeerMemory& peers = *two.a.device.peers();
  EXPECT_TRUE(peers.CanReach(two.b.device.Uuid()));
  EXPECT_FALSE(peers.CanReach("GPU-5ca8c5d7"));
  std::string why_not;
  const std::string name = two.b.device.peers()->Export(two.b.word(1), &why_not);
  const auto mapped = peers.Import(name, &why_not);
  ASSERT_NE(mapped, nullptr) << why_not;
  EXPECT_EQ(mapped->data(), two.b.word(1));
  EXPECT_EQ(mapped->bytes(), 12);
  uint32_t on_host = 0;
  EXPECT_EQ(two.b.device.peers()->Export(&on_host, &why_not), "");
  EXPECT_THAT(why_not, HasSubstr("no device allocated"));
  two.b.words.reset();
  EXPECT_EQ(peers.Import(name, &why_not), nullptr);
  EXPECT_EQ(why_not, "the memory is gone");
}

// As on a GPU, where plain memory has no descriptor: a program that allocates what peers write as
// another kind must not pass here.
TEST(AsyncPeerMemoryTest, NamesMemoryOfTheSharedKindAlone) {
  Two two;
  PeerMemory& peers = *two.b.device.peers();
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kPinnedHost}) {
    const auto plain = two.b.device.Allocate(64, kind);
    std::string why_not;
    EXPECT_EQ(peers.Export(plain->data(), &why_not), "");
    EXPECT_EQ(why_not, "it is not of the kind that is shared");
  }
  const auto shared = two.b.device.Allocate(64, MemoryKind::kShared);
  std::string why_not;
  const std::string name = peers.Export(static_cast<char*>(shared->data()) + 16, &why_not);
  const auto mapped = two.a.device.peers()->Import(name, &why_not);
  ASSERT_NE(mapped, nullptr) << why_not;
  EXPECT_EQ(mapped->bytes(), 48);
}

TEST(AsyncPeerMemoryTest, MemoryThatIsFreedWhileItIsMappedIsReported) {
  Two two;
  PeerMemory& peers = *two.a.device.peers();
  std::string why_not;
  auto first = peers.Import(two.b.device.peers()->Export(two.b.word(), &why_not), &why_not);
  const auto second = peers.Import(two.b.device.peers()->Export(two.b.word(1), &why_not), &why_not);
  first.reset();
  EXPECT_THAT(two.world.EarlyFrees(), IsEmpty());
  two.b.words.reset();
  EXPECT_THAT(two.world.EarlyFrees(),
              ElementsAre("rank 1: freed before the host knew that rank 0 maps it no more"));
}

TEST(AsyncPeerMemoryTest, RefusesAsADriverWould) {
  AsyncWorld world({});
  EXPECT_EQ(MakeAsyncPeerMemory(&world, 0, Sharing::kNone), nullptr);
  const auto no_path = MakeAsyncPeerMemory(&world, 0, Sharing::kNoPath);
  EXPECT_FALSE(no_path->CanReach(AsyncUuid(1)));
  int64_t data = 0;
  world.Allocate(0, &data, sizeof(data), /*shared=*/true);
  std::string why_not;
  const std::string name = no_path->Export(&data, &why_not);
  EXPECT_NE(no_path->Import(name, &why_not), nullptr);
  EXPECT_EQ(MakeAsyncPeerMemory(&world, 0, Sharing::kNoImport)->Import(name, &why_not), nullptr);
  EXPECT_EQ(why_not, "this device maps no memory");
  const auto no_export = MakeAsyncPeerMemory(&world, 0, Sharing::kNoExport);
  EXPECT_EQ(no_export->Export(&data, &why_not), "");
  EXPECT_EQ(why_not, "this device names no memory");
}

}  // namespace
}  // namespace mt::kernels::async
