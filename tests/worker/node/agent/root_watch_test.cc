// The identity of the checkpoint root as the agent keeps it: made where there is none, never the
// root itself, and followed when the root comes late, goes, or becomes another one.
#include "worker/node/agent/root_watch.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/node/agent/agent_rig.h"
#include "worker/checkpoint/format/root_marker.h"

namespace mt::node {
namespace {

using std::chrono::milliseconds;

class RootWatchTest : public ::testing::Test {
 protected:
  RootWatchTest() {
    char pattern[] = "/tmp/mt-root-test-XXXXXX";
    folder_ = mkdtemp(pattern);
    root_ = folder_ + "/ckpt";
  }
  ~RootWatchTest() override { std::filesystem::remove_all(folder_); }

  RootWatch::Config Quick() {
    return {.root = root_,
            .node = "node-a",
            .search = milliseconds(5),
            .interval = milliseconds(5),
            .changed = [this] { ++changes_; }};
  }
  // Waits until the watch knows this id.
  static bool Becomes(const RootWatch& watch, const std::string& id) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (watch.id() != id && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(milliseconds(2));
    return watch.id() == id;
  }
  std::string IdOnDisk() const {
    const auto marker = checkpoint::ReadRootMarker(root_);
    return marker.ok() && *marker ? (*marker)->id : "";
  }

  std::string folder_, root_;
  std::atomic<int> changes_ = 0;
};

TEST_F(RootWatchTest, TheIdentityIsKnownOnceTheWatchIsMade) {
  std::filesystem::create_directory(root_);
  const RootWatch watch(Quick());
  EXPECT_NE(watch.id(), "");
  EXPECT_EQ(watch.id(), IdOnDisk());
  EXPECT_EQ(changes_, 0);
}

TEST_F(RootWatchTest, AMissingRootIsNotMadeAndOneThatComesLateIsMarked) {
  const RootWatch watch(Quick());
  EXPECT_EQ(watch.id(), "");
  EXPECT_FALSE(base::Exists(root_));
  std::filesystem::create_directory(root_);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (changes_ == 0 && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(milliseconds(2));
  EXPECT_NE(watch.id(), "");
  EXPECT_EQ(watch.id(), IdOnDisk());
}

TEST_F(RootWatchTest, ARootThatGoesOrBecomesAnotherOneIsFollowed) {
  std::filesystem::create_directory(root_);
  const RootWatch watch(Quick());
  const std::string first = watch.id();
  std::filesystem::rename(root_, folder_ + "/away");
  EXPECT_TRUE(Becomes(watch, ""));
  EXPECT_FALSE(base::Exists(root_));
  std::filesystem::create_directory(folder_ + "/other");
  const std::string other = checkpoint::EnsureRootMarker(folder_ + "/other", "node-b")->id;
  std::filesystem::rename(folder_ + "/other", root_);
  EXPECT_TRUE(Becomes(watch, other));
  EXPECT_NE(other, first);
}

using RootIdentityTest = AgentTest;

TEST_F(RootIdentityTest, TheCoordinatorAndTheRanksAreToldTheIdentityAsItIs) {
  using megatrain::v1::WorkerMessage;
  std::string id = "root-1";
  config_.node.checkpoint_root_id = [&id] { return id; };
  RestartAgent();
  EXPECT_EQ(coordinator_.Heard(WorkerMessage::kRegister).back().register_().checkpoint_root_id(),
            "root-1");
  id = "root-2";
  agent_->ReportSlots();
  const auto changed = coordinator_.Heard(WorkerMessage::kSlotsChanged);
  ASSERT_EQ(changed.size(), 1U);
  EXPECT_EQ(changed[0].slots_changed().checkpoint_root_id(), "root-2");
  EXPECT_EQ(changed[0].slots_changed().slots_size(), 4);
  megatrain::v1::CoordinatorMessage assign = AssignMessage(1);
  assign.mutable_assign()->mutable_base()->set_step(7);
  assign.mutable_assign()->set_restart("token");
  coordinator_.Say(assign);
  loop_.RunPosted();
  Attach(0);
  ASSERT_EQ(ranks_.heard[100].size(), 1U);
  EXPECT_EQ(ranks_.heard[100][0].assignment().checkpoint_root_id(), "root-2");
  EXPECT_EQ(ranks_.heard[100][0].assignment().base().step(), 7);
  EXPECT_EQ(ranks_.heard[100][0].assignment().restart(), "token");
}

}  // namespace
}  // namespace mt::node
