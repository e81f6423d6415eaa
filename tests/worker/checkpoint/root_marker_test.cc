// The identity of a checkpoint root: made once by whoever comes first, kept by all, and named where
// it cannot be made.
#include "worker/checkpoint/format/root_marker.h"

#include <filesystem>
#include <set>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/checkpoint/temp_dir.h"

namespace mt::checkpoint {
namespace {

class RootMarkerTest : public ::testing::Test {
 protected:
  std::string Path() const { return dir_.File(std::string(kRootMarkerName)); }
  std::set<std::string> Files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path()))
      names.insert(entry.path().filename().string());
    return names;
  }
  TempDir dir_;
};

TEST_F(RootMarkerTest, TheFirstOneMakesItAndAllLaterOnesKeepIt) {
  EXPECT_FALSE(ReadRootMarker(dir_.path())->has_value());
  const auto made = EnsureRootMarker(dir_.path(), "node-a");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->node, "node-a");
  EXPECT_EQ(made->made.back(), 'Z');
  const std::string text = base::ReadFile(Path()).value();
  const auto again = EnsureRootMarker(dir_.path(), "node-b");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->id, made->id);
  EXPECT_EQ(again->node, "node-a");
  EXPECT_EQ(base::ReadFile(Path()).value(), text);
  EXPECT_EQ(Files(), std::set<std::string>{std::string(kRootMarkerName)});
}

TEST_F(RootMarkerTest, TwoRootsHaveTwoIdentities) {
  TempDir other;
  EXPECT_NE(EnsureRootMarker(dir_.path(), "a")->id, EnsureRootMarker(other.path(), "a")->id);
}

TEST_F(RootMarkerTest, ARootIsToldFromAnother) {
  EXPECT_TRUE(absl::IsNotFound(CheckRootMarker(dir_.path(), "id"))) << "it has none";
  const auto made = EnsureRootMarker(dir_.path(), "a");
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(CheckRootMarker(dir_.path(), made->id).ok());
  const Status other = CheckRootMarker(dir_.path(), "id");
  EXPECT_TRUE(absl::IsNotFound(other));
  EXPECT_EQ(base::Message(other), dir_.path() + " is another root (its marker has id " + made->id +
                                      ", the job's root has id)");
  EXPECT_TRUE(absl::IsNotFound(CheckRootMarker(dir_.File("none"), made->id)));
}

TEST_F(RootMarkerTest, OfManyAtTheSameMomentOneWins) {
  constexpr int kRounds = 20, kContenders = 8;
  for (int round = 0; round < kRounds; ++round) {
    std::filesystem::remove(Path());
    std::vector<std::string> ids(kContenders);
    std::vector<std::thread> threads;
    threads.reserve(kContenders);
    for (int i = 0; i < kContenders; ++i) {
      threads.emplace_back([&, i] {
        const auto marker = EnsureRootMarker(dir_.path(), "node-" + std::to_string(i));
        ids[static_cast<size_t>(i)] = marker.ok() ? marker->id : base::Message(marker.status());
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), 1U) << ids[0];
    EXPECT_EQ(Files(), std::set<std::string>{std::string(kRootMarkerName)});
  }
}

TEST_F(RootMarkerTest, AMissingRootIsNamedAndNeverMade) {
  const std::string missing = dir_.File("not-mounted");
  for (const Status& status :
       {ReadRootMarker(missing).status(), EnsureRootMarker(missing, "a").status()}) {
    EXPECT_TRUE(absl::IsNotFound(status)) << status;
    EXPECT_NE(base::Message(status).find(missing), std::string::npos) << status;
  }
  EXPECT_FALSE(base::Exists(missing));
}

TEST_F(RootMarkerTest, AFileIsNoRoot) {
  const std::string file = dir_.File("file");
  ASSERT_TRUE(base::WriteFileAtomic(file, "x").ok());
  EXPECT_TRUE(absl::IsNotFound(EnsureRootMarker(file, "a").status()));
}

// In a child without root's rights: root may write anywhere.
TEST_F(RootMarkerTest, ARootThatCannotBeWrittenIsNamedAndOneThatIsMarkedIsRead) {
  const auto in_child = [this](bool marked) {
    const pid_t child = ::fork();
    if (child != 0) {
      int status = 0;
      ::waitpid(child, &status, 0);
      return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(9);
    const auto marker = EnsureRootMarker(dir_.path(), "b");
    const bool named = absl::IsPermissionDenied(marker.status()) &&
                       base::Message(marker.status()).find(dir_.path()) != std::string::npos;
    ::_exit(marked == marker.ok() && (marked || named) ? 0 : 1);
  };
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0555), 0);
  EXPECT_EQ(in_child(false), 0);
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
  ASSERT_TRUE(EnsureRootMarker(dir_.path(), "a").ok());
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0555), 0);
  EXPECT_EQ(in_child(true), 0);
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
}

TEST_F(RootMarkerTest, ADamagedMarkerIsNamedAndStays) {
  for (const char* text : {"", "{", "[]", "{\"format\":\"megatrain-root\"}",
                           "{\"format\":\"megatrain-root\",\"version\":1,\"id\":\"a/b\","
                           "\"made\":\"\",\"node\":\"\"}"}) {
    ASSERT_TRUE(base::WriteFileAtomic(Path(), text).ok());
    const auto marker = EnsureRootMarker(dir_.path(), "a");
    EXPECT_TRUE(absl::IsDataLoss(marker.status())) << text << marker.status();
    EXPECT_NE(base::Message(marker.status()).find(Path()), std::string::npos) << marker.status();
    EXPECT_EQ(base::ReadFile(Path()).value(), text);
  }
}

TEST_F(RootMarkerTest, ANewerFormatIsRefused) {
  const auto marker =
      ParseRootMarker(R"({"format":"megatrain-root","version":2,"id":"x","made":"","node":""})");
  EXPECT_TRUE(absl::IsFailedPrecondition(marker.status())) << marker.status();
}

TEST_F(RootMarkerTest, TheTextComesBackAsItWas) {
  const RootMarker marker{.id = "0b-1", .made = "2026-11-23T10:00:00Z", .node = "node \"x\""};
  const auto back = ParseRootMarker(ToJson(marker));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->id, marker.id);
  EXPECT_EQ(back->made, marker.made);
  EXPECT_EQ(back->node, marker.node);
}

}  // namespace
}  // namespace mt::checkpoint
