// Saving and loading on one rank: atomicity at every failpoint, loading any slices from any slices,
// detection of damage, a full disk.
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "worker/checkpoint/loader.h"
#include "worker/checkpoint/retention.h"
#include "worker/checkpoint/writer.h"

namespace mt::checkpoint {
namespace {

constexpr int64_t kRows = 7, kColumns = 5, kDepth = 3;

std::vector<double> Values() {
  std::vector<double> values(kRows * kColumns * kDepth);
  std::iota(values.begin(), values.end(), 0.5);
  return values;
}

// A box of the [kRows, kColumns, kDepth] tensor, copied out.
std::vector<double> Part(const std::vector<double>& all, const std::vector<int64_t>& offset,
                         const std::vector<int64_t>& shape) {
  std::vector<double> out;
  for (int64_t i = 0; i < shape[0]; ++i) {
    for (int64_t j = 0; j < shape[1]; ++j) {
      for (int64_t k = 0; k < shape[2]; ++k) {
        out.push_back(all[static_cast<size_t>(
            ((offset[0] + i) * kColumns + offset[1] + j) * kDepth + offset[2] + k)]);
      }
    }
  }
  return out;
}

SaveArgs OneTensor(const TempDir& dir, int64_t step, const std::vector<double>& values) {
  SaveArgs args;
  args.directory = dir.File("ckpt");
  args.manifest.step = step;
  args.manifest.epoch = 1;
  args.manifest.spec_json = R"({"model":{"layers":2},"training":{"seed":1}})";
  args.slices = {{.key = "weights/w",
                  .dtype = kernels::DType::kF64,
                  .global_shape = {kRows, kColumns, kDepth},
                  .offset = {0, 0, 0},
                  .shape = {kRows, kColumns, kDepth},
                  .data = values.data()}};
  return args;
}

Status LoadWhole(const std::string& directory, const CheckpointId& id, std::vector<double>* out) {
  ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(directory, id));
  out->assign(kRows * kColumns * kDepth, -1);
  LoadArgs args{
      .directory = directory, .id = id, .manifest = &manifest, .slices = {}, .progress = {}};
  args.slices = {{.key = "weights/w",
                  .dtype = kernels::DType::kF64,
                  .global_shape = {kRows, kColumns, kDepth},
                  .offset = {0, 0, 0},
                  .shape = {kRows, kColumns, kDepth},
                  .data = out->data()}};
  return LoadTensors(args);
}

TEST(SaveLoadTest, WhatWasSavedIsLoaded) {
  const TempDir dir;
  const std::vector<double> values = Values();
  SaveArgs args = OneTensor(dir, 10, values);
  int64_t progress = 0;
  args.progress = [&](int64_t bytes) { progress += bytes; };
  const auto saved = SaveCheckpoint(args);
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->path, dir.File("ckpt/step-00000010-e0001"));
  EXPECT_EQ(progress, static_cast<int64_t>(values.size() * 8));
  EXPECT_GT(saved->bytes, progress);
  int64_t on_disk = 0;
  for (const auto& entry : std::filesystem::directory_iterator(saved->path)) {
    on_disk += static_cast<int64_t>(entry.file_size());
  }
  EXPECT_EQ(saved->bytes, on_disk);
  EXPECT_EQ(saved->digest, ManifestDigest(base::ReadFile(saved->path + "/manifest.json").value()));
  std::vector<double> back;
  ASSERT_TRUE(LoadWhole(args.directory, {10, 1}, &back).ok());
  EXPECT_EQ(back, values);
  EXPECT_EQ(SaveCheckpoint(args).status().code(), absl::StatusCode::kAlreadyExists);
}

// Memory that is not the host's, as writers and loaders see it: read and written through copies.
class CopyingReader final : public PieceReader {
 public:
  void Start(const void* data, int64_t bytes) override {
    EXPECT_LE(bytes, kLargestPieceBytes);
    const auto* from = static_cast<const char*>(data);
    pieces_.emplace_back(from, from + bytes);
  }
  const void* Read() override {
    read_ = std::move(pieces_.front());
    pieces_.pop_front();
    return read_.data();
  }

 private:
  std::deque<std::vector<char>> pieces_;
  std::vector<char> read_;
};

// A matrix of 3 MB rows with gaps, in pieces that begin within runs: the file has no gaps, a loader
// with other gaps leaves them, or zero where it copies to a device.
TEST(SaveLoadTest, GapsInMemoryAreNotInTheFile) {
  constexpr int64_t kWide = 400'000, kLines = 5;
  const base::Runs saved{.length = 7'000, .stride = 9'001, .skip = 6'500};
  const base::Runs loaded{.length = 50'001, .stride = 60'000, .skip = 3};
  std::vector<double> values(kWide * kLines),
      all(static_cast<size_t>(saved.Span(kWide * kLines)), -3);
  std::iota(values.begin(), values.end(), 0.5);
  base::CopyToRuns(saved, kWide * kLines, 8, values.data(), all.data());
  const TempDir dir;
  for (const bool device : {false, true}) {
    CopyingReader reader;
    SaveArgs args = OneTensor(dir, device ? 2 : 1, values);
    args.slices[0].global_shape = args.slices[0].shape = {kLines, kWide};
    args.slices[0].offset = {0, 0};
    args.slices[0].data = all.data();
    args.slices[0].places = saved;
    args.reader = device ? &reader : nullptr;
    const auto result = SaveCheckpoint(args);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_LT(result->bytes, kLines * kWide * 8 + 10'000);
    const auto manifest = ReadManifest(args.directory, {args.manifest.step, 1});
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    LoadArgs load{.directory = args.directory,
                  .id = {args.manifest.step, 1},
                  .manifest = &*manifest,
                  .slices = {},
                  .progress = {}};
    if (device) {
      load.put = [](void* to, const void* from, int64_t bytes) {
        std::memcpy(to, from, static_cast<size_t>(bytes));
      };
    }
    // Rows 1 to 3 without their first column.
    constexpr int64_t kCount = 3 * (kWide - 1);
    std::vector<double> out(static_cast<size_t>(loaded.Span(kCount)), -1);
    load.slices = {{.key = "weights/w",
                    .dtype = kernels::DType::kF64,
                    .global_shape = {kLines, kWide},
                    .offset = {1, 1},
                    .shape = {3, kWide - 1},
                    .data = out.data(),
                    .places = loaded}};
    ASSERT_TRUE(LoadTensors(load).ok());
    int64_t element = 0;
    for (int64_t place = 0; place < static_cast<int64_t>(out.size()); ++place) {
      const double got = out[static_cast<size_t>(place)];
      if (element < kCount && loaded.At(element) == place) {
        const int64_t row = element / (kWide - 1) + 1, column = element % (kWide - 1) + 1;
        ASSERT_EQ(got, values[static_cast<size_t>(row * kWide + column)]) << element;
        ++element;
      } else {
        ASSERT_EQ(got, device ? 0 : -1) << "the gap at " << place;
      }
    }
    EXPECT_EQ(element, kCount);
  }
}

// Random cuts along the first and second dimension when saving; random boxes when loading.
TEST(SaveLoadTest, AnySlicesLoadIntoAnySlices) {
  std::mt19937 random(7);
  const std::vector<double> values = Values();
  for (int round = 0; round < 50; ++round) {
    const TempDir dir;
    SaveArgs args = OneTensor(dir, 1, values);
    args.slices.clear();
    std::vector<std::vector<double>> parts;
    const auto row_cut = static_cast<int64_t>(random() % (kRows + 1));
    const auto column_cut = static_cast<int64_t>(random() % (kColumns + 1));
    for (const auto& [r, rows] :
         {std::pair{int64_t{0}, row_cut}, std::pair{row_cut, kRows - row_cut}}) {
      for (const auto& [c, columns] :
           {std::pair{int64_t{0}, column_cut}, std::pair{column_cut, kColumns - column_cut}}) {
        if (rows * columns == 0) continue;
        parts.push_back(Part(values, {r, c, 0}, {rows, columns, kDepth}));
        args.slices.push_back({.key = "weights/w",
                               .dtype = kernels::DType::kF64,
                               .global_shape = {kRows, kColumns, kDepth},
                               .offset = {r, c, 0},
                               .shape = {rows, columns, kDepth},
                               .data = nullptr});
      }
    }
    for (size_t i = 0; i < parts.size(); ++i) args.slices[i].data = parts[i].data();
    ASSERT_TRUE(SaveCheckpoint(args).ok());
    const auto manifest = ReadManifest(args.directory, {1, 1});
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    const auto pick = [&](int64_t n) {
      const auto a = static_cast<int64_t>(random() % static_cast<uint64_t>(n));
      return std::pair{a, 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(n - a))};
    };
    const auto [r, rows] = pick(kRows);
    const auto [c, columns] = pick(kColumns);
    const auto [d, depth] = pick(kDepth);
    std::vector<double> out(static_cast<size_t>(rows * columns * depth), -1);
    LoadArgs load{.directory = args.directory,
                  .id = {1, 1},
                  .manifest = &*manifest,
                  .slices = {},
                  .progress = {}};
    load.slices = {{.key = "weights/w",
                    .dtype = kernels::DType::kF64,
                    .global_shape = {kRows, kColumns, kDepth},
                    .offset = {r, c, d},
                    .shape = {rows, columns, depth},
                    .data = out.data()}};
    ASSERT_TRUE(LoadTensors(load).ok());
    EXPECT_EQ(out, Part(values, {r, c, d}, {rows, columns, depth}));
  }
}

TEST(SaveLoadTest, AFailureAtAnyPointLeavesTheOldCheckpointAndNoNewOne) {
  const std::vector<double> values = Values();
  for (const std::string point : {"begin", "folder", "shard", "gathered", "manifest", "checked"}) {
    const TempDir dir;
    ASSERT_TRUE(SaveCheckpoint(OneTensor(dir, 10, values)).ok());
    SaveArgs args = OneTensor(dir, 20, values);
    args.failpoint = [&](std::string_view at) {
      return at == point ? absl::ResourceExhaustedError("disk full") : OkStatus();
    };
    EXPECT_EQ(SaveCheckpoint(args).status().code(), absl::StatusCode::kResourceExhausted) << point;
    EXPECT_EQ(FindNewest(args.directory)->value(), (CheckpointId{10, 1})) << point;
    EXPECT_FALSE(base::Exists(dir.File("ckpt/step-00000020-e0001.tmp"))) << point;
    // The same save works once the disk has room again.
    args.failpoint = nullptr;
    EXPECT_TRUE(SaveCheckpoint(args).ok()) << point;
  }
}

// The process dies at each point: the newest complete checkpoint is found and loads.
TEST(SaveLoadTest, KilledAtAnyPointNothingIsTorn) {
  const std::vector<double> values = Values();
  for (const std::string point :
       {"begin", "folder", "shard", "gathered", "manifest", "checked", "renamed"}) {
    const TempDir dir;
    ASSERT_TRUE(SaveCheckpoint(OneTensor(dir, 10, values)).ok());
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      SaveArgs args = OneTensor(dir, 20, values);
      args.failpoint = [&](std::string_view at) {
        if (at == point) ::_exit(9);
        return OkStatus();
      };
      (void)SaveCheckpoint(args);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(WEXITSTATUS(status), 9) << point;
    const int64_t expected = point == "renamed" ? 20 : 10;
    const auto newest = FindNewest(dir.File("ckpt"));
    ASSERT_TRUE(newest.ok());
    EXPECT_EQ(newest->value(), (CheckpointId{expected, 1})) << point;
    std::vector<double> back;
    EXPECT_TRUE(LoadWhole(dir.File("ckpt"), {expected, 1}, &back).ok());
    EXPECT_EQ(back, values);
  }
}

TEST(SaveLoadTest, EveryFlippedByteOfTheDataIsFound) {
  const TempDir dir;
  const std::vector<double> values = Values();
  ASSERT_TRUE(SaveCheckpoint(OneTensor(dir, 1, values)).ok());
  const std::string path = dir.File("ckpt/step-00000001-e0001/rank-00000.safetensors");
  const std::string whole = *base::ReadFile(path);
  for (size_t n = whole.size() - values.size() * 8; n < whole.size(); n += 37) {
    std::string damaged = whole;
    damaged[n] = static_cast<char>(damaged[n] ^ 1);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << damaged;
    std::vector<double> back;
    const Status status = LoadWhole(dir.File("ckpt"), {1, 1}, &back);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(base::Message(status).find("weights/w"), std::string::npos) << status;
  }
  std::filesystem::remove(path);
  std::vector<double> back;
  const Status missing = LoadWhole(dir.File("ckpt"), {1, 1}, &back);
  EXPECT_EQ(missing.code(), absl::StatusCode::kDataLoss) << "the manifest names it";
  EXPECT_NE(base::Message(missing).find("rank-00000.safetensors is missing"), std::string::npos)
      << missing;
}

TEST(SaveLoadTest, AnotherModelsTensorsAreRefusedWithBothShapes) {
  const TempDir dir;
  const std::vector<double> values = Values();
  ASSERT_TRUE(SaveCheckpoint(OneTensor(dir, 1, values)).ok());
  const auto manifest = ReadManifest(dir.File("ckpt"), {1, 1});
  std::vector<double> out(4);
  LoadArgs args{.directory = dir.File("ckpt"),
                .id = {1, 1},
                .manifest = &*manifest,
                .slices = {},
                .progress = {}};
  args.slices = {{"weights/w", kernels::DType::kF64, {2, 2}, {0, 0}, {2, 2}, out.data()}};
  const Status shape = LoadTensors(args);
  EXPECT_EQ(shape.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(base::Message(shape).find("[7, 5, 3]"), std::string::npos) << shape;
  EXPECT_NE(base::Message(shape).find("[2, 2]"), std::string::npos) << shape;
  args.slices[0].key = "weights/other";
  EXPECT_EQ(LoadTensors(args).code(), absl::StatusCode::kNotFound);
}

TEST(PruneTest, KeepsTheNewestAndRemovesUnfinishedOnesOfOldEpochs) {
  const TempDir dir;
  const std::vector<double> values = Values();
  for (int64_t step = 1; step <= 5; ++step)
    ASSERT_TRUE(SaveCheckpoint(OneTensor(dir, step, values)).ok());
  std::filesystem::create_directories(dir.File("ckpt/step-00000009-e0001.tmp"));
  std::filesystem::create_directories(dir.File("ckpt/step-00000009-e0002.tmp"));
  const auto removed =
      PruneCheckpoints({.directory = dir.File("ckpt"), .rules = {.keep_last = 3}, .epoch = 2});
  ASSERT_TRUE(removed.ok()) << removed.status();
  EXPECT_EQ(*ListCheckpoints(dir.File("ckpt")),
            (std::vector<CheckpointId>{{3, 1}, {4, 1}, {5, 1}}));
  EXPECT_FALSE(base::Exists(dir.File("ckpt/step-00000009-e0001.tmp")));
  EXPECT_TRUE(base::Exists(dir.File("ckpt/step-00000009-e0002.tmp")));
  // Never fewer than two, whatever is asked.
  ASSERT_TRUE(
      PruneCheckpoints({.directory = dir.File("ckpt"), .rules = {.keep_last = 0}, .epoch = 2})
          .ok());
  EXPECT_EQ(ListCheckpoints(dir.File("ckpt"))->size(), 2U);
}

// Of many tensors; and damage that one of the threads finds.
TEST(SaveLoadTest, ManyThreadsLoadWhatOneDoes) {
  const TempDir dir;
  const std::vector<double> values = Values();
  SaveArgs args = OneTensor(dir, 1, values);
  const SliceToSave one = args.slices[0];
  args.slices.clear();
  for (int i = 0; i < 50; ++i) {
    args.slices.push_back(one);
    args.slices.back().key = "weights/" + std::to_string(i);
  }
  ASSERT_TRUE(SaveCheckpoint(args).ok());
  const CheckpointId id{args.manifest.step, args.manifest.epoch};
  const Manifest manifest = ReadManifest(args.directory, id).value();
  const auto load = [&](int threads, std::vector<std::vector<double>>* out) {
    LoadArgs wanted{.directory = args.directory, .id = id, .manifest = &manifest};
    wanted.threads = threads;
    out->assign(50, std::vector<double>(values.size()));
    int64_t bytes = 0;  // one thread at a time: no race
    wanted.progress = [&bytes](int64_t n) { bytes += n; };
    for (size_t i = 0; i < 50; ++i) {
      wanted.slices.push_back({"weights/" + std::to_string(i), one.dtype, one.global_shape,
                               one.offset, one.shape, (*out)[i].data()});
    }
    const Status loaded = LoadTensors(wanted);
    EXPECT_TRUE(!loaded.ok() || bytes == static_cast<int64_t>(50 * values.size() * 8));
    return loaded;
  };
  std::vector<std::vector<double>> alone, together;
  ASSERT_TRUE(load(1, &alone).ok());
  ASSERT_TRUE(load(4, &together).ok());
  EXPECT_EQ(together, alone);
  EXPECT_EQ(together[49], values);
  // The middle of the file is damaged.
  const std::string path = args.directory + "/" + FolderName(id) + "/rank-00000.safetensors";
  std::string text = *base::ReadFile(path);
  text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 1);
  ASSERT_TRUE(base::WriteFileAtomic(path, text).ok());
  EXPECT_EQ(load(4, &together).code(), absl::StatusCode::kDataLoss);
}

// A path that cannot hold a folder: the error names it, and nothing else is harmed.
TEST(SaveLoadTest, AnUnusableDirectoryIsOneClearError) {
  const TempDir dir;
  const std::vector<double> values = Values();
  SaveArgs args = OneTensor(dir, 1, values);
  std::ofstream(dir.File("plain")) << "x";
  args.directory = dir.File("plain/ckpt");
  const auto saved = SaveCheckpoint(args);
  ASSERT_FALSE(saved.ok());
  EXPECT_NE(base::Message(saved.status()).find("plain"), std::string::npos) << saved.status();
}

}  // namespace
}  // namespace mt::checkpoint
