// Files of another program that change while ranks open and read them, each at its own time: the
// run begins with one model or not at all.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/train/train_rig.h"
#include "worker/checkpoint/inspect/place.h"
#include "worker/hf/export.h"
#include "worker/llmc/export.h"

namespace mt::train {
namespace {

namespace fs = std::filesystem;

// Tells of the loading of a rank, with the bytes that have come so far.
class LoadingWatch final : public TrainObserver {
 public:
  explicit LoadingWatch(std::function<void(int64_t done)> told) : told_(std::move(told)) {}
  void OnActivity(const Activity& activity) override {
    if (activity.kind == ActivityKind::kLoading) told_(activity.done);
  }

 private:
  const std::function<void(int64_t done)> told_;
};

// Until this process, another rank of it, has the file open.
void AwaitOpen(const std::string& path) {
  const fs::path real = fs::canonical(path);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < end) {
    for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
      std::error_code closed;
      if (fs::read_symlink(entry.path(), closed) == real) return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ADD_FAILURE() << path << " is not opened";
}

class ForeignFilesTest : public TrainTest {
 protected:
  // The weights of two runs: first.bin and other.bin, first/ and other/ in shards.
  void ExportTwo() {
    const std::vector<std::pair<std::string, std::string>> runs = {{"first", "1"}, {"other", "2"}};
    for (const auto& [name, seed] : runs) {
      ExpectClean(Run({"checkpoint.directory=of-" + name, "training.seed=" + seed},
                      {{1, {CommandKind::kStopWithSave, ""}}}),
                  2);
      const auto id = OnDisk("of-" + name).back();
      const auto place =
          checkpoint::FindCheckpoint(Path("of-" + name + "/" + checkpoint::FolderName(id)));
      ASSERT_TRUE(place.ok()) << place.status();
      ASSERT_TRUE(llmc::Export({.from = *place, .to = Path(name + ".bin")}).ok());
      ASSERT_TRUE(
          hf::Export(
              {.from = *place, .to = Path(name), .dtype = "float32", .max_shard_bytes = 4000})
              .ok());
    }
  }
  std::string Path(const std::string& name) const { return dir_.path() + "/checkpoints/" + name; }
  // Its files of weights in order.
  std::vector<std::string> FilesOf(const std::string& kind, const std::string& name) const {
    if (kind == "llmc") return {Path(name + ".bin")};
    std::vector<std::string> out;
    for (const auto& entry : fs::directory_iterator(Path(name))) {
      const std::string path = entry.path().string();
      if (path.ends_with(".safetensors")) out.push_back(path);
    }
    std::ranges::sort(out);
    EXPECT_GT(out.size(), 1U);
    return out;
  }
  std::vector<RankOutcome> Begin(const std::string& kind, std::vector<std::string> more) {
    more.insert(more.end(), {std::string("checkpoint.load=first") + (kind == "hf" ? "" : ".bin"),
                             "checkpoint.load_kind=" + kind, "checkpoint.directory=none",
                             "training.train_iters=3"});
    return Run(more);
  }
  // Begins on two ranks; once rank 0 has opened all files, `change` is called, and then rank 1
  // opens them.
  std::vector<RankOutcome> BeginOnTwo(const std::string& kind,
                                      const std::function<void()>& change) {
    const std::string last = FilesOf(kind, "first").back();
    bool changed = false;
    LoadingWatch watch([&](int64_t /*done*/) {
      if (std::exchange(changed, true)) return;
      AwaitOpen(last);
      change();
    });
    adjust_ = [&](int rank, TrainArgs* args) {
      if (rank == 1) args->observer = &watch;
    };
    std::vector<RankOutcome> out = Begin(kind, {"parallel.data=2"});
    adjust_ = nullptr;
    EXPECT_TRUE(changed);
    return out;
  }
  // No rank begins, and each says so.
  static void ExpectRefused(const std::vector<RankOutcome>& ranks, const std::string& text) {
    for (const RankOutcome& rank : ranks) {
      EXPECT_FALSE(rank.created);
      EXPECT_NE(base::Message(rank.result.status).find(text), std::string::npos)
          << text << " in " << rank.result.status;
    }
  }
};

TEST_F(ForeignFilesTest, RanksThatOpenDifferentModelsDoNotBegin) {
  ASSERT_NO_FATAL_FAILURE(ExportTwo());
  for (const std::string kind : {"llmc", "hf"}) {
    ExpectClean(Begin(kind, {"parallel.data=2"}), 3);
    const auto ranks = BeginOnTwo(kind, [&] {
      const auto from = FilesOf(kind, "other"), to = FilesOf(kind, "first");
      ASSERT_EQ(from.size(), to.size());
      for (size_t i = 0; i < from.size(); ++i) fs::rename(from[i], to[i]);
    });
    ExpectRefused(ranks, "do not find the same model");
    EXPECT_EQ(failure::CauseOf(ranks[0].result.status), failure::Cause::kStorage);
    EXPECT_EQ(failure::CauseOf(ranks[1].result.status), failure::Cause::kStorage);
    ExpectClean(Begin(kind, {"parallel.data=2"}), 3);
  }
}

// Nobody waits for a rank that has given up.
TEST_F(ForeignFilesTest, AFileThatIsGoneForOneRankEndsAll) {
  ASSERT_NO_FATAL_FAILURE(ExportTwo());
  for (const std::string kind : {"llmc", "hf"}) {
    const std::string last = FilesOf(kind, "first").back();
    const auto ranks = BeginOnTwo(kind, [&] { fs::remove(last); });
    ExpectRefused(ranks, fs::path(last).filename().string());
    EXPECT_NE(base::Message(ranks[0].result.status).find("rank 1"), std::string::npos)
        << ranks[0].result.status;
  }
}

// In place, as cp does it: every rank has the same file all the time.
TEST_F(ForeignFilesTest, AFileThatIsWrittenOverMeanwhileIsRefused) {
  ASSERT_NO_FATAL_FAILURE(ExportTwo());
  for (const std::string kind : {"llmc", "hf"}) {
    const std::string to = FilesOf(kind, "first").front();
    const std::string bytes = base::ReadFile(FilesOf(kind, "other").front()).value();
    ASSERT_EQ(base::FileSize(to).value(), std::ssize(bytes));
    bool changed = false;
    LoadingWatch watch([&](int64_t done) {
      if (done == 0 || std::exchange(changed, true)) return;
      std::fstream file(to, std::ios::binary | std::ios::in | std::ios::out);
      file.write(bytes.data(), std::ssize(bytes)).flush();
      EXPECT_TRUE(file.good());
    });
    adjust_ = [&](int /*rank*/, TrainArgs* args) { args->observer = &watch; };
    const auto ranks = Begin(kind, {});
    adjust_ = nullptr;
    EXPECT_TRUE(changed);
    ExpectRefused(ranks, "was written over while it was read");
    ExpectClean(Begin(kind, {}), 3);
  }
}

}  // namespace
}  // namespace mt::train
