// The process groups of a rank over meshes of threads: who is in them, that all ranks find each
// other whatever the mesh, and that an end of one rank's part reaches every group.
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "tests/worker/parallel/groups/hungry_factory.h"
#include "tests/worker/train/guarded_backend.h"
#include "worker/comm/threads/hub.h"
#include "worker/parallel/groups/rank_groups.h"

namespace mt::parallel {
namespace {

using layout::Mesh;
using layout::MeshSizes;

class GroupsTest : public ::testing::Test {
 protected:
  // Runs `body` with each rank's groups, every rank a thread.
  template <class Body>
  void OnEveryRank(const MeshSizes& sizes, int chunks, const Body& body) {
    const Mesh mesh = Mesh::Create(sizes).value();
    comm::ThreadsHub hub(comm::CommConfig{.op_timeout = std::chrono::seconds(30),
                                          .connect_timeout = std::chrono::seconds(30)});
    std::vector<std::thread> threads;
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
      threads.emplace_back([&, rank] {
        const auto backend = kernels::cpu::MakeCpuBackend({.num_threads = 1}).value();
        auto groups = RankGroups::Create({.mesh = mesh,
                                          .rank = rank,
                                          .chunks = chunks,
                                          .tied_tables = true,
                                          .factory = &hub,
                                          .device = &backend->device()});
        ASSERT_TRUE(groups.ok()) << groups.status();
        const auto stream = backend->device().CreateStream(kernels::StreamPriority::kLow);
        body(groups->get(), *stream);
        if ((*groups)->world() == nullptr || !(*groups)->status().ok()) return;
        EXPECT_TRUE((*groups)->world()->Barrier(*stream).ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
};

std::vector<int> MembersOf(const comm::ProcessGroup* group) {
  std::vector<int> members;
  if (group == nullptr) return members;
  for (int i = 0; i < group->size(); ++i) members.push_back(group->WorldRank(i));
  return members;
}

TEST(CommunicatorBytesTest, AreWhatTheDeviceHasLessAfterwards) {
  const Mesh mesh = Mesh::Create({.dp = 2}).value();
  comm::ThreadsHub hub(comm::CommConfig{});
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      train::GuardedBackend backend(int64_t{1} << 20);
      HungryFactory on_device(&hub, &backend.device(), 4096);
      const auto groups = RankGroups::Create({.mesh = mesh,
                                              .rank = rank,
                                              .factory = &hub,
                                              .device_factory = &on_device,
                                              .device = &backend.device()})
                              .value();
      EXPECT_EQ(on_device.num_groups(), 3)
          << "control, reduction, gathering; the world is the host's";
      EXPECT_EQ(groups->communicator_bytes(), 3 * 4096);
      const auto stream = backend.device().CreateStream(kernels::StreamPriority::kLow);
      EXPECT_TRUE(groups->world()->Barrier(*stream).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(GroupsTest, FollowTheMesh) {
  OnEveryRank({.tp = 2, .dp = 2, .pp = 2}, 1, [](RankGroups* groups, kernels::Stream&) {
    const int rank = groups->rank();
    const int tp = rank % 2;
    const int dp = rank / 2 % 2;
    const int pp = rank / 4;
    EXPECT_EQ(groups->at(), (layout::Coordinates{.tp = tp, .cp = 0, .dp = dp, .pp = pp}));
    EXPECT_EQ(groups->world()->size(), 8);
    EXPECT_EQ(groups->world()->rank(), rank);
    EXPECT_EQ(MembersOf(groups->tp()), (std::vector<int>{rank - tp, rank - tp + 1}));
    EXPECT_EQ(MembersOf(groups->tp_control()), MembersOf(groups->tp()));
    EXPECT_NE(groups->tp_control(), groups->tp());
    EXPECT_EQ(MembersOf(groups->dp_reduce()), (std::vector<int>{rank - 2 * dp, rank - 2 * dp + 2}));
    EXPECT_EQ(MembersOf(groups->dp_gather()), MembersOf(groups->dp_reduce()));
    EXPECT_EQ(MembersOf(groups->tied()), (std::vector<int>{rank - 4 * pp, rank - 4 * pp + 4}));
    const StageLinks& links = *groups->links();
    EXPECT_EQ(links.activation_out != nullptr, pp == 0);
    EXPECT_EQ(links.gradient_in != nullptr, pp == 0);
    EXPECT_EQ(links.activation_in != nullptr, pp == 1);
    EXPECT_EQ(links.gradient_out != nullptr, pp == 1);
    EXPECT_FALSE(groups->shares_memory()) << "nobody writes another one's";
  });
}

// Notes which groups carry words.
class NotingFactory final : public comm::GroupFactory {
 public:
  explicit NotingFactory(comm::GroupFactory* inner) : inner_(inner) {}

  StatusOr<std::unique_ptr<comm::ProcessGroup>> Create(comm::GroupSpec spec) override {
    words_.emplace(spec.name.substr(0, spec.name.find('/')), spec.words);
    return inner_->Create(std::move(spec));
  }
  const std::map<std::string, bool>& words() const { return words_; }

 private:
  comm::GroupFactory* const inner_;
  std::map<std::string, bool> words_;
};

TEST(GroupsOfWordsTest, AreThoseOfAllRanksInTheHostsMemory) {
  const Mesh mesh = Mesh::Create({.tp = 2, .dp = 2}).value();
  comm::ThreadsHub hub(comm::CommConfig{});
  std::vector<std::thread> threads;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    threads.emplace_back([&, rank] {
      const auto backend = kernels::cpu::MakeCpuBackend({.num_threads = 1}).value();
      NotingFactory of_host(&hub);
      NotingFactory on_device(&hub);
      const auto groups = RankGroups::Create({.mesh = mesh,
                                              .rank = rank,
                                              .saves_beside = true,
                                              .factory = &of_host,
                                              .device_factory = &on_device,
                                              .device = &backend->device()})
                              .value();
      EXPECT_EQ(of_host.words(),
                (std::map<std::string, bool>{{"world", true}, {"checkpoint", true}}));
      EXPECT_EQ(on_device.words(), (std::map<std::string, bool>{{"control", false},
                                                                {"tp", false},
                                                                {"tp-control", false},
                                                                {"dp-reduce", false},
                                                                {"dp-gather", false}}));
      const auto stream = backend->device().CreateStream(kernels::StreamPriority::kLow);
      EXPECT_TRUE(groups->world()->Barrier(*stream).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Of one stage tensor ranks have all logits by their own group.
TEST(GroupsThatDecodeTest, AreThoseOfSeveralStages) {
  for (const int stages : {1, 2}) {
    const Mesh mesh = Mesh::Create({.tp = 2, .pp = stages}).value();
    comm::ThreadsHub hub(comm::CommConfig{});
    std::vector<std::thread> threads;
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
      threads.emplace_back([&, rank] {
        const auto backend = kernels::cpu::MakeCpuBackend({.num_threads = 1}).value();
        const auto groups = RankGroups::Create({.mesh = mesh,
                                                .rank = rank,
                                                .decodes = true,
                                                .factory = &hub,
                                                .device = &backend->device()})
                                .value();
        EXPECT_EQ(groups->decode() != nullptr, stages > 1);
        if (stages > 1) {
          EXPECT_EQ(groups->decode()->rank(), rank);
          EXPECT_EQ(groups->decode()->size(), 4);
        }
        const auto stream = backend->device().CreateStream(kernels::StreamPriority::kLow);
        EXPECT_TRUE(groups->world()->Barrier(*stream).ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(GroupsOverCopiesTest, AreThoseOfGradientsAndWeights) {
  const Mesh mesh = Mesh::Create({.dp = 2, .pp = 2}).value();
  comm::ThreadsHub hub(comm::CommConfig{});
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(mesh.world_size()));
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    threads.emplace_back([&, rank] {
      const auto backend = kernels::cpu::MakeCpuBackend({.num_threads = 1}).value();
      NotingFactory copies(&hub);
      const auto groups = RankGroups::Create({.mesh = mesh,
                                              .rank = rank,
                                              .tied_tables = true,
                                              .factory = &hub,
                                              .copy_factory = &copies,
                                              .device = &backend->device()})
                              .value();
      EXPECT_EQ(copies.words(), (std::map<std::string, bool>{
                                    {"dp-reduce", false}, {"dp-gather", false}, {"tied", false}}));
      const auto stream = backend->device().CreateStream(kernels::StreamPriority::kLow);
      EXPECT_TRUE(groups->world()->Barrier(*stream).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Makes groups of the device's kind alone: where it would make others there are none.
class RefusingFactory final : public comm::GroupFactory {
 public:
  explicit RefusingFactory(comm::GroupFactory* otherwise) : otherwise_(otherwise) {}
  StatusOr<std::unique_ptr<comm::ProcessGroup>> Create(comm::GroupSpec spec) override {
    if (spec.own_kind) return std::unique_ptr<comm::ProcessGroup>();
    return otherwise_->Create(std::move(spec));
  }

 private:
  comm::GroupFactory* const otherwise_;
};

TEST(GroupsOverCopiesTest, TensorRanksHaveASecondGroupWhereCopiesDo) {
  const Mesh mesh = Mesh::Create({.tp = 2, .dp = 2}).value();
  for (const bool refuses : {false, true}) {
    comm::ThreadsHub hub(comm::CommConfig{});
    std::vector<std::thread> threads;
    threads.reserve(static_cast<size_t>(mesh.world_size()));
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
      threads.emplace_back([&, rank] {
        const auto backend = kernels::cpu::MakeCpuBackend({.num_threads = 1}).value();
        RefusingFactory refusing(&hub);
        NotingFactory copies(refuses ? static_cast<comm::GroupFactory*>(&refusing) : &hub);
        const auto groups = RankGroups::Create({.mesh = mesh,
                                                .rank = rank,
                                                .factory = &hub,
                                                .copy_factory = &copies,
                                                .device = &backend->device()})
                                .value();
        EXPECT_TRUE(copies.words().contains("tp-copies"));
        ASSERT_NE(groups->tp(), nullptr);
        EXPECT_EQ(groups->tp()->name(), rank < 2 ? "tp/0" : "tp/2");
        EXPECT_EQ(groups->tp_copies() == nullptr, refuses);
        EXPECT_NE(groups->dp_reduce(), nullptr) << "of the other kind";
        if (!refuses) {
          groups->tp_copies()->Abort("told to leave");
          EXPECT_EQ(groups->status().code(), absl::StatusCode::kAborted);
          return;
        }
        const auto stream = backend->device().CreateStream(kernels::StreamPriority::kLow);
        EXPECT_TRUE(groups->world()->Barrier(*stream).ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_F(GroupsTest, AreMadeOnEveryMeshWithoutWaitingInACircle) {
  for (const MeshSizes& sizes :
       {MeshSizes{}, MeshSizes{.tp = 4}, MeshSizes{.dp = 3}, MeshSizes{.pp = 5},
        MeshSizes{.tp = 2, .pp = 3}, MeshSizes{.dp = 2, .pp = 4}, MeshSizes{.tp = 3, .dp = 2}}) {
    for (const int chunks : {1, 3}) {
      OnEveryRank(sizes, chunks, [&](RankGroups* groups, kernels::Stream&) {
        const int stage = groups->at().pp;
        EXPECT_EQ(groups->tp() != nullptr, sizes.tp > 1);
        EXPECT_EQ(groups->dp_reduce() != nullptr, sizes.dp > 1);
        EXPECT_EQ(groups->tied() != nullptr, sizes.pp > 1 && (stage == 0 || stage == sizes.pp - 1));
        const bool ring = sizes.pp > 1 && chunks > 1;
        EXPECT_EQ(groups->links()->activation_out != nullptr, ring || stage < sizes.pp - 1);
        EXPECT_EQ(groups->links()->activation_in != nullptr, ring || stage > 0);
      });
    }
  }
}

TEST_F(GroupsTest, AbortEndsTheCallsOfThisRankAndItsPeersInEveryGroup) {
  OnEveryRank({.tp = 2, .dp = 2, .pp = 2}, 1, [](RankGroups* groups, kernels::Stream& stream) {
    if (groups->rank() == 0) {
      groups->Abort("told to leave");
      EXPECT_EQ(groups->status().code(), absl::StatusCode::kAborted);
      EXPECT_EQ(groups->links()->activation_out->status().code(), absl::StatusCode::kAborted);
      for (comm::ProcessGroup* group : {groups->world(), groups->tp(), groups->tp_control(),
                                        groups->dp_reduce(), groups->dp_gather(), groups->tied()}) {
        EXPECT_EQ(group->status().code(), absl::StatusCode::kAborted);
      }
      groups->LetGoOfMemory();
      groups->Abort("again");  // without links
      return;
    }
    comm::ProcessGroup* const group = groups->rank() == 1   ? groups->tp()
                                      : groups->rank() == 2 ? groups->dp_gather()
                                      : groups->rank() == 4 ? groups->tied()
                                                            : groups->world();
    EXPECT_EQ(group->Barrier(stream).code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(groups->status().code(), absl::StatusCode::kUnavailable);
  });
}

TEST_F(GroupsTest, CountByAxis) {
  OnEveryRank({.tp = 2, .dp = 2}, 1, [](RankGroups* groups, kernels::Stream& stream) {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(groups->tp()->Barrier(stream).ok());
    EXPECT_TRUE(groups->tp_control()->Barrier(stream).ok());
    EXPECT_TRUE(groups->dp_gather()->Barrier(stream).ok());
    const GroupStats stats = groups->Stats();
    EXPECT_EQ(stats.tp.of(comm::CommOp::kBarrier).num_calls, 4);
    EXPECT_EQ(stats.dp.of(comm::CommOp::kBarrier).num_calls, 1);
    EXPECT_EQ(stats.pp.of(comm::CommOp::kBarrier).num_calls, 0);
    EXPECT_EQ(stats.world.of(comm::CommOp::kBarrier).num_calls, 0);
  });
}

}  // namespace
}  // namespace mt::parallel
