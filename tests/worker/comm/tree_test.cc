// Groups of words over a tree: its shape, the bits of its results, calls that differ, and members
// that go.
#include "worker/comm/gloo/tree.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/worker/comm/group_harness.h"
#include "tests/worker/comm/open_sockets.h"
#include "worker/comm/gloo/gloo_factory.h"
#include "worker/comm/memory_store.h"
#include "worker/comm/shm/shm_factory.h"

namespace mt::comm {
namespace {

using kernels::DType;

// More than one level, and a last one that is not full.
constexpr int kTreeRanks = 21;

TEST(Tree, JoinsEveryMemberOnceUnderOneRoot) {
  for (int size = 1; size <= 600; ++size) {
    std::vector<int> parents(static_cast<size_t>(size), -2);
    for (int member = 0; member < size; ++member) {
      const TreePlace place = PlaceInTree(member, size);
      ASSERT_LE(place.children.size(), static_cast<size_t>(kTreeArity));
      // Its subtree is the member, then the children's subtrees without a gap.
      int next = member + 1;
      for (size_t i = 0; i < place.children.size(); ++i) {
        ASSERT_EQ(place.children[i], next) << member << " of " << size;
        next = place.EndOf(i);
        const TreePlace child = PlaceInTree(place.children[i], size);
        ASSERT_EQ(child.parent, member);
        ASSERT_EQ(child.end, next);
        parents[static_cast<size_t>(place.children[i])] = member;
      }
      ASSERT_EQ(next, place.end) << member << " of " << size;
    }
    ASSERT_EQ(PlaceInTree(0, size).end, size);
    ASSERT_EQ(PlaceInTree(0, size).parent, -1);
    ASSERT_EQ(std::count(parents.begin(), parents.end(), -2), 1) << "all but the root have one";
  }
}

TEST(Tree, IsFlat) {
  for (const auto& [size, depth] : std::map<int, int>{{9, 1}, {73, 2}, {1024, 4}, {4681, 4}}) {
    int deepest = 0;
    for (int member = 0; member < size; ++member) {
      int hops = 0;
      for (int at = member; at != 0; at = PlaceInTree(at, size).parent) ++hops;
      deepest = std::max(deepest, hops);
    }
    EXPECT_EQ(deepest, depth) << size;
  }
}

TEST(Tree, PeersKnowEachOther) {
  for (int member = 0; member < 100; ++member) {
    const std::vector<int> peers = TreePeers(member, 100);
    EXPECT_TRUE(std::is_sorted(peers.begin(), peers.end()));
    for (const int peer : peers) {
      const std::vector<int> theirs = TreePeers(peer, 100);
      EXPECT_EQ(std::count(theirs.begin(), theirs.end(), member), 1);
    }
  }
}

// What each rank obtains of some calls, as bytes.
class Results {
 public:
  template <class T>
  void Add(int rank, const std::vector<T>& values) {
    const auto* const bytes = reinterpret_cast<const char*>(values.data());
    const std::lock_guard lock(mu_);
    of_rank_[rank].append(bytes, values.size() * sizeof(T));
  }
  const std::map<int, std::string>& of_rank() const { return of_rank_; }

 private:
  std::mutex mu_;
  std::map<int, std::string> of_rank_;
};

// Of uint16_t: bits of bf16.
template <class T>
T As(double value) {
  return static_cast<T>(value);
}
template <>
uint16_t As(double value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16);
}

template <class T>
std::vector<T> Terms(int rank, size_t count) {
  std::mt19937 generator(static_cast<uint32_t>(rank) + 7);
  std::vector<T> terms(count);
  for (T& term : terms) term = As<T>(static_cast<int32_t>(generator()) / 1e3);
  return terms;
}

template <class T>
void Reduce(ProcessGroup& group, DType dtype, size_t count, bool in_place, Results* results) {
  InlineStream stream;
  const auto elements = static_cast<int64_t>(count);
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    const std::vector<T> in = Terms<T>(group.rank(), count);
    std::vector<T> out = in_place ? in : std::vector<T>(count);
    ASSERT_EQ(
        group.AllReduce(stream, in_place ? out.data() : in.data(), out.data(), elements, dtype, op),
        OkStatus());
    results->Add(group.rank(), out);
  }
}

void CallAll(ProcessGroup& group, Results* results) {
  InlineStream stream;
  const auto size = static_cast<size_t>(group.size());
  const auto rank = static_cast<size_t>(group.rank());
  for (const size_t count : {1U, 8U, 100U}) {
    Reduce<double>(group, DType::kF64, count, /*in_place=*/true, results);
    Reduce<float>(group, DType::kF32, count, /*in_place=*/false, results);
    Reduce<uint16_t>(group, DType::kBf16, count, /*in_place=*/false, results);
    Reduce<int64_t>(group, DType::kI64, count, /*in_place=*/true, results);
    const auto elements = static_cast<int64_t>(count);
    std::vector<float> all(size * count);
    const std::vector<float> mine = Terms<float>(group.rank(), count);
    ASSERT_EQ(group.AllGather(stream, mine.data(), all.data(), elements, DType::kF32), OkStatus());
    results->Add(group.rank(), all);
    // In its own place.
    std::vector<float> again(size * count);
    std::copy(mine.begin(), mine.end(), again.begin() + static_cast<std::ptrdiff_t>(rank * count));
    ASSERT_EQ(
        group.AllGather(stream, again.data() + rank * count, again.data(), elements, DType::kF32),
        OkStatus());
    EXPECT_EQ(again, all);
    for (int root = 0; root < group.size(); root += 5) {
      std::vector<float> data = Terms<float>(group.rank() + root, count);
      ASSERT_EQ(group.Broadcast(stream, data.data(), elements, DType::kF32, root), OkStatus());
      EXPECT_EQ(data, Terms<float>(2 * root, count));
      results->Add(group.rank(), data);
    }
    ASSERT_EQ(group.Barrier(stream), OkStatus());
    ASSERT_EQ(group.AllReduce(stream, nullptr, nullptr, 0, DType::kF32, ReduceOp::kSum),
              OkStatus());
    ASSERT_EQ(group.AllGather(stream, nullptr, nullptr, 0, DType::kF32), OkStatus());
  }
}

TEST(TreeGroup, GivesTheBitsOfGroupsOfThreads) {
  std::array<Results, 2> results;
  size_t i = 0;
  for (const Kind kind : {Kind::kThreads, Kind::kGloo}) {
    Ranks ranks(kind, kTreeRanks);
    ranks.Run(
        "words", [&](ProcessGroup& group) { CallAll(group, &results[i]); }, /*words=*/true);
    ++i;
  }
  ASSERT_EQ(results[0].of_rank().size(), static_cast<size_t>(kTreeRanks));
  EXPECT_TRUE(results[0].of_rank() == results[1].of_rank());
}

// Asks another store and counts.
class CountingStore final : public RendezvousStore {
 public:
  Status Set(const std::string& key, std::string_view bytes) override {
    return store_.Set(key, bytes);
  }
  StatusOr<std::string> Get(const std::string& key, base::MonotonicTime deadline) override {
    ++num_gets_;
    return store_.Get(key, deadline);
  }
  int num_gets() const { return num_gets_; }

 private:
  MemoryStore store_;
  std::atomic<int> num_gets_ = 0;
};

TEST(TreeGroup, ConnectsAndReadsOnlyWhatATreeNeeds) {
  CountingStore store;
  std::vector<std::unique_ptr<GroupFactory>> tcp;
  std::vector<std::unique_ptr<GroupFactory>> factories;
  for (int rank = 0; rank < kTreeRanks; ++rank) {
    auto factory = MakeGlooFactory(&store, {});
    ASSERT_TRUE(factory.ok()) << factory.status();
    tcp.push_back(std::move(*factory));
    // Members of one host could share memory, and would each read what all others say to it.
    factories.push_back(MakeShmFactory(&store, {}, tcp.back().get()));
  }
  const int before = OpenSockets();
  std::vector<int> members(kTreeRanks);
  std::iota(members.begin(), members.end(), 0);
  std::vector<std::unique_ptr<ProcessGroup>> groups(kTreeRanks);
  std::vector<std::thread> threads;
  threads.reserve(kTreeRanks);
  for (int rank = 0; rank < kTreeRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto i = static_cast<size_t>(rank);
      auto group = factories[i]->Create(
          {.name = "words", .members = members, .my_index = rank, .words = true});
      ASSERT_TRUE(group.ok()) << group.status();
      groups[i] = std::move(*group);
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Two ends and two reads a connection, of which a tree has one less than members.
  EXPECT_EQ(OpenSockets() - before, 2 * (kTreeRanks - 1));
  EXPECT_EQ(store.num_gets(), 2 * (kTreeRanks - 1));
}

TEST(TreeGroup, CarriesWordsAlone) {
  for (const Kind kind : {Kind::kThreads, Kind::kGloo}) {
    Ranks ranks(kind, kTreeRanks);
    ranks.Run(
        "words",
        [](ProcessGroup& group) {
          InlineStream stream;
          std::vector<float> data(static_cast<size_t>(group.size()));
          const int next = (group.rank() + 1) % group.size();
          for (const Status& status :
               {group.ReduceScatter(stream, data.data(), data.data(), 1, DType::kF32,
                                    ReduceOp::kSum),
                group.AllToAll(stream, data.data(), data.data(), 1, DType::kF32),
                group.Send(stream, data.data(), 1, DType::kF32, next, 0),
                group.Recv(stream, data.data(), 1, DType::kF32, next, 0)}) {
            EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
          }
          EXPECT_EQ(group.Barrier(stream), OkStatus());
        },
        /*words=*/true);
  }
}

// The last member, a leaf.
TEST(TreeGroup, ACallThatDiffersBreaksItForAll) {
  Ranks ranks(Kind::kGloo, kTreeRanks);
  std::latch all_out(kTreeRanks);  // of the barrier, which a break may end for those inside
  std::atomic<int> saw_it = 0;
  ranks.Run(
      "words",
      [&](ProcessGroup& group) {
        InlineStream stream;
        EXPECT_EQ(group.Barrier(stream), OkStatus());
        all_out.arrive_and_wait();
        std::vector<double> data(9);
        const int64_t count = group.rank() == kTreeRanks - 1 ? 9 : 8;
        const Status status =
            group.AllReduce(stream, data.data(), data.data(), count, DType::kF64, ReduceOp::kSum);
        const std::string text(status.ToString());
        if (absl::IsFailedPrecondition(status)) {
          ++saw_it;
          EXPECT_EQ(group.rank(), PlaceInTree(kTreeRanks - 1, kTreeRanks).parent);
          EXPECT_NE(text.find("rank 20 (world 30) calls all_reduce sum of 9 f64"),
                    std::string::npos)
              << text;
          EXPECT_NE(text.find("all_reduce sum of 8 f64"), std::string::npos) << text;
        } else {
          EXPECT_TRUE(absl::IsUnavailable(status)) << status;
        }
      },
      /*words=*/true);
  EXPECT_EQ(saw_it, 1);
}

// One is aborted, leaves, or is late while the others wait for all.
enum class Way { kAborts, kLeaves, kIsLate };

void GoOneOf(Way way, int goes) {
  CommConfig config;
  if (way == Way::kIsLate) config.op_timeout = std::chrono::milliseconds(300);
  Ranks ranks(Kind::kGloo, kTreeRanks, config);
  std::atomic<int> ended = 0;
  ranks.Run(
      "words",
      [&](ProcessGroup& group) {
        InlineStream stream;
        if (group.rank() == goes) {
          if (way == Way::kAborts) group.Abort("the job was stopped");
          while (way != Way::kLeaves && ended < kTreeRanks - 1) std::this_thread::yield();
          return;
        }
        const Status status = group.Barrier(stream);
        EXPECT_TRUE(absl::IsUnavailable(status) ||
                    (way == Way::kIsLate && absl::IsDeadlineExceeded(status)))
            << status;
        ++ended;
      },
      /*words=*/true);
  EXPECT_EQ(ended, kTreeRanks - 1);
}

TEST(TreeGroup, AnAbortEndsAllWaits) {
  for (const int rank : {0, 1, kTreeRanks - 1}) GoOneOf(Way::kAborts, rank);
}

TEST(TreeGroup, AMemberThatLeavesEndsAllWaits) {
  for (const int rank : {0, 1, kTreeRanks - 1}) GoOneOf(Way::kLeaves, rank);
}

TEST(TreeGroup, ADeadlineEndsAllWaits) {
  for (const int rank : {0, kTreeRanks - 1}) GoOneOf(Way::kIsLate, rank);
}

TEST(TreeGroup, IsMadeOnlyOnceAllHaveCome) {
  CommConfig config;
  // Long enough for a busy machine to connect those that have come.
  config.connect_timeout = std::chrono::seconds(3);
  Ranks ranks(Kind::kGloo, kTreeRanks, config);
  std::vector<int> members(kTreeRanks);
  std::iota(members.begin(), members.end(), 0);
  std::atomic<int> named = 0;
  std::vector<std::thread> threads;
  threads.reserve(kTreeRanks);
  for (int rank = 0; rank < kTreeRanks - 1; ++rank) {
    threads.emplace_back([&, rank] {
      const auto group = ranks.factory(rank).Create(
          {.name = "words", .members = members, .my_index = rank, .words = true});
      ASSERT_FALSE(group.ok());
      const std::string text(group.status().ToString());
      named += text.find("waiting for rank 20 (world 20)") != std::string::npos;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(named, 1) << "the one whose neighbour it is";
}

}  // namespace
}  // namespace mt::comm
