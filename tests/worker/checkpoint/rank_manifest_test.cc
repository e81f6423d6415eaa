// The manifests of ranks: who has what, what a load reads of them, and what happens where one is
// missing, damaged, another one or wrong in itself; and saves by ranks that do not fit together.
#include "worker/checkpoint/format/rank_manifest.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "tests/worker/checkpoint/saved_state.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "tests/worker/comm/group_harness.h"
#include "worker/checkpoint/format/whole_manifest.h"
#include "worker/checkpoint/loader.h"
#include "worker/checkpoint/writer.h"
#include "worker/comm/threads/hub.h"

namespace mt::checkpoint {
namespace {

using nlohmann::json;
using Ranges = std::vector<std::pair<int64_t, int64_t>>;

class RankManifestTest : public testing::Test {
 protected:
  // By two ranks; digests of blocks of 32 bytes.
  void Save(Cut cut) {
    SavedState state = MakeState();
    state.manifest.block_bytes = 32;
    folder_ = SaveState(dir_.path(), state, cut);
    state_ = state;
  }

  Manifest Root() const { return ReadManifest(dir_.path(), {10, 1}).value(); }

  // Loads a box of a tensor and compares it with what was saved.
  Status Load(const std::string& key, const std::vector<int64_t>& offset,
              const std::vector<int64_t>& shape) const {
    ASSIGN_OR_RETURN(const Manifest root, ReadManifest(dir_.path(), {10, 1}));
    const StateTensor& tensor = state_.tensors.at(key);
    std::vector<double> out(static_cast<size_t>(CountElements(shape)), -1);
    LoadArgs args{.directory = dir_.path(), .id = {10, 1}, .manifest = &root};
    args.slices = {{.key = key,
                    .dtype = kernels::DType::kF64,
                    .global_shape = tensor.shape,
                    .offset = offset,
                    .shape = shape,
                    .data = out.data()}};
    RETURN_IF_ERROR(LoadTensors(args));
    // Of matrices and vectors alone.
    const int64_t columns = shape.size() > 1 ? shape[1] : 1;
    for (int64_t i = 0; i < std::ssize(out); ++i) {
      const int64_t row = offset[0] + i / columns;
      const int64_t place =
          shape.size() > 1 ? row * tensor.shape[1] + offset[1] + i % columns : row;
      EXPECT_EQ(out[static_cast<size_t>(i)], tensor.values[static_cast<size_t>(place)]);
    }
    return OkStatus();
  }
  Status LoadWhole(const std::string& key) const {
    const std::vector<int64_t>& shape = state_.tensors.at(key).shape;
    return Load(key, std::vector<int64_t>(shape.size(), 0), shape);
  }

  std::string Path(int rank) const { return base::JoinPath(folder_, RankManifestName(rank)); }

  static void Overwrite(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  }

  // Changes a rank's manifest and gives the root its new length and digest.
  void Rewrite(int rank, const std::function<void(json& tensors)>& change) const {
    json content = json::parse(base::ReadFile(Path(rank)).value());
    change(content.at("tensors"));
    const std::string text = content.dump();
    Overwrite(Path(rank), text);
    Manifest root = Root();
    root.ranks.at(static_cast<size_t>(rank)).bytes = std::ssize(text);
    root.ranks.at(static_cast<size_t>(rank)).digest = base::Hash128Of(text);
    Overwrite(base::JoinPath(folder_, kManifestName), ToJson(root));
  }

  static void ExpectDamage(const Status& status, const std::string& word) {
    EXPECT_TRUE(absl::IsDataLoss(status)) << word << ": " << status;
    EXPECT_NE(base::Message(status).find(word), std::string::npos) << status;
  }

  const TempDir dir_;
  SavedState state_;
  std::string folder_;
};

TEST_F(RankManifestTest, TheRootTellsWhoHasWhat) {
  // In the order of keys: exp_avg/a, weights/a, weights/cube, weights/norm.
  Save(Cut::kColumns);
  Manifest root = Root();
  ASSERT_EQ(root.ranks.size(), 2U);
  EXPECT_EQ(root.ranks[0].manifest, "rank-00000.json");
  EXPECT_EQ(root.ranks[1].file, "rank-00001.safetensors");
  EXPECT_EQ(root.ranks[0].tensors, (Ranges{{0, 3}}));
  EXPECT_EQ(root.ranks[1].tensors, (Ranges{{0, 2}})) << "the vector is the first rank's";
  EXPECT_EQ(root.ranks[0].num_slices, 4);
  EXPECT_EQ(root.ranks[1].num_slices, 3);
  for (const auto& [key, tensor] : root.tensors) EXPECT_TRUE(tensor.slices.empty()) << key;
  const auto whole = ReadWholeManifest(dir_.path(), {10, 1}, /*threads=*/2);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->tensors.at("weights/a").slices.size(), 2U);
  EXPECT_EQ(whole->tensors.at("weights/a").slices[1].file, "rank-00001.safetensors");
  EXPECT_EQ(whole->tensors.at("weights/norm").slices.size(), 1U);
}

TEST_F(RankManifestTest, ATextComesBackAsItWas) {
  Save(Cut::kBuckets);
  // Two boxes of each matrix, one of the others.
  EXPECT_EQ(Root().ranks[0].num_slices, 6);
  EXPECT_EQ(Root().ranks[1].num_slices, 6);
  for (const RankEntry& rank : Root().ranks) {
    const std::string text = base::ReadFile(base::JoinPath(folder_, rank.manifest)).value();
    const auto tensors = ParseRankManifest(text, rank.file, 32);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    EXPECT_EQ(RankManifestText(*tensors), text);
    EXPECT_EQ(json::parse(text).at("version"), 2);
  }
  // A name that needs care.
  const TensorTable odd = {
      {"weights/\"\\\n", {"F32", {1}, {{"f", "weights/\"\\\n", {0}, {1}, {{1, 2}}}}}}};
  EXPECT_EQ(RankManifestText(ParseRankManifest(RankManifestText(odd), "f", 8).value()),
            RankManifestText(odd));
}

// worker/checkpoint/FORMAT.md, "Worked example".
TEST_F(RankManifestTest, TextsAreThoseOfTheFormat) {
  const base::Hash128Value digest = {0x0123456789abcdef, 0xfedcba9876543210};
  const TensorTable tensors = {{"weights/a",
                                {.dtype = "F32",
                                 .shape = {4, 3},
                                 .slices = {{"f", "weights/a#0", {0, 0}, {2, 3}, {digest}},
                                            {"f", "weights/a#1", {2, 0}, {1, 1}, {digest}}}}}};
  const std::string text = RankManifestText(tensors);
  EXPECT_EQ(text, R"({
 "format": "megatrain-checkpoint-rank",
 "version": 2,
 "tensors": {
  "weights/a": {"dtype": "F32", "shape": [4, 3], "slices": [
   {"tensor": "weights/a#0", "offset": [0, 0], "shape": [2, 3], "xxh3_128": ["0123456789abcdeffedcba9876543210"]},
   {"tensor": "weights/a#1", "offset": [2, 0], "shape": [1, 1], "xxh3_128": ["0123456789abcdeffedcba9876543210"]}]}
 }
}
)");
  Manifest root;
  root.spec_json = "{}";
  root.tensors["weights/a"] = {.dtype = "F32", .shape = {4, 3}, .slices = {}};
  for (int rank = 0; rank < 2; ++rank) {
    root.ranks.push_back(
        {RankManifestName(rank), RankFileName(rank), std::ssize(text), digest, 2, {{0, 0}}});
  }
  const std::string end = R"( "ranks": [
  {"manifest": "rank-00000.json", "file": "rank-00000.safetensors", "bytes": 368, "xxh3_128": "0123456789abcdeffedcba9876543210", "slices": 2, "tensors": [[0, 0]]},
  {"manifest": "rank-00001.json", "file": "rank-00001.safetensors", "bytes": 368, "xxh3_128": "0123456789abcdeffedcba9876543210", "slices": 2, "tensors": [[0, 0]]}
 ],
 "tensors": {
  "weights/a": {"dtype": "F32", "shape": [4, 3]}
 }
}
)";
  EXPECT_TRUE(ToJson(root).ends_with(end)) << ToJson(root);
  EXPECT_NE(ToJson(root).find("\n \"block_bytes\": 4194304,\n"), std::string::npos);
}

TEST_F(RankManifestTest, ALoadReadsThoseOfItsTensors) {
  Save(Cut::kColumns);
  std::filesystem::remove(Path(1));
  EXPECT_TRUE(LoadWhole("weights/norm").ok());
  ExpectDamage(LoadWhole("weights/a"), Path(1) + " is missing");
  ExpectDamage(Load("weights/a", {0, 0}, {1, 1}), Path(1) + " is missing");
  ExpectDamage(ReadWholeManifest(dir_.path(), {10, 1}).status(), Path(1) + " is missing");
}

TEST_F(RankManifestTest, EveryFlippedByteAndTruncationIsFoundAndNamed) {
  Save(Cut::kRows);
  ASSERT_TRUE(LoadWhole("weights/norm").ok());
  const std::string whole = base::ReadFile(Path(1)).value();
  for (size_t at = 0; at < whole.size(); at += 7) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    Overwrite(Path(1), damaged);
    ExpectDamage(LoadWhole("weights/norm"), Path(1) + " is damaged");
    Overwrite(Path(1), whole.substr(0, at));
    ExpectDamage(LoadWhole("weights/norm"), Path(1) + " is damaged");
  }
  Overwrite(Path(1), whole + "\n");
  ExpectDamage(LoadWhole("weights/norm"), Path(1) + " is damaged");
  Overwrite(Path(1), base::ReadFile(Path(0)).value());
  ExpectDamage(LoadWhole("weights/norm"), Path(1) + " is damaged");
  Overwrite(Path(1), whole);
  EXPECT_TRUE(LoadWhole("weights/norm").ok());
}

// Manifests whose digests fit, and that do not fit together.
TEST_F(RankManifestTest, WhatIsWantedMustBeThereOnce) {
  const auto expect = [&](const std::function<void(json & tensors)>& change,
                          const std::string& word) {
    std::filesystem::remove_all(folder_);
    Save(Cut::kRows);
    Rewrite(1, change);
    ExpectDamage(LoadWhole("weights/a"), word);
    // That reads no files of tensors.
    EXPECT_EQ(ReadWholeManifest(dir_.path(), {10, 1}).ok(),
              word.starts_with("does not hold") || word.starts_with("is damaged"))
        << word;
  };
  const auto slices = [](json& tensors) -> json& { return tensors.at("weights/a").at("slices"); };
  expect([&](json& t) { slices(t).clear(); }, "hold 10 of 30 elements");
  expect([&](json& t) { t.erase("weights/a"); }, "weights/a is not what");
  expect([&](json& t) { slices(t)[0].at("offset")[0] = 1; }, "overlap");
  expect([&](json& t) { slices(t).push_back(slices(t)[0]); }, "overlap");
  expect([&](json& t) { slices(t)[0].at("offset")[0] = 3; }, "reaches outside");
  expect([&](json& t) { slices(t)[0].at("xxh3_128").erase(0); }, "4 digests for 5 blocks");
  expect([&](json& t) { slices(t)[0].at("xxh3_128")[0] = "ABC"; }, "what is no digest");
  expect([&](json& t) { t["weights/z"] = t.at("weights/a"); }, "weights/z is not what");
  expect([&](json& t) { t.at("weights/a").at("shape")[0] = 7; }, "weights/a is not what");
  expect([&](json& t) { t.at("weights/norm").at("dtype") = "F64"; }, "weights/norm is not what");
  expect([&](json& t) { slices(t)[0].at("tensor") = "weights/b"; }, "does not hold weights/b");
  expect([&](json& t) { t = 5; }, "damaged manifest of a rank");
  expect([&](json& t) { slices(t)[0].erase("offset"); }, "a slice without a field");
  expect([&](json& t) { t.at("weights/norm").erase("dtype"); }, "a tensor without a field");
  expect([&](json& t) { slices(t)[0].at("shape")[0] = 1.5; }, "another type at \"shape\"");
  expect([&](json& t) { slices(t)[0].at("shape")[0] = "4"; }, "another type at \"shape\"");
  expect([&](json& t) { slices(t)[0].at("shape")[0] = ~0ULL; }, "another type at \"shape\"");
  expect([&](json& t) { slices(t)[0].at("shape")[0] = json::array({4}); }, "another type");
  expect([&](json& t) { slices(t)[0].at("xxh3_128") = "text"; }, "another type");
  expect([&](json& t) { slices(t)[0] = json::array(); }, "another type");
  // Any digit of a digest counts.
  for (const size_t digit : {size_t{0}, size_t{15}, size_t{16}, size_t{31}}) {
    expect(
        [&](json& t) {
          std::string digest = slices(t)[0].at("xxh3_128")[4];
          digest[digit] = digest[digit] == '0' ? '1' : '0';
          slices(t)[0].at("xxh3_128")[4] = digest;
        },
        "is damaged (digest");
  }
  // What a later version may add.
  std::filesystem::remove_all(folder_);
  Save(Cut::kRows);
  Rewrite(1, [&](json& t) {
    const json more = {{"shape", {1, {{"slices", 2.5}}}}, {"tensors", nullptr}};
    t.at("weights/a")["more"] = slices(t)[0]["more"] = more;
    slices(t)[0]["flag"] = true;
  });
  EXPECT_TRUE(LoadWhole("weights/a").ok());
  // Elsewhere than what is wanted: who wants less is content.
  std::filesystem::remove_all(folder_);
  Save(Cut::kRows);
  Rewrite(1, [&](json& t) { slices(t)[0].at("offset")[0] = 1; });
  EXPECT_TRUE(Load("weights/a", {0, 0}, {1, 5}).ok());
  ExpectDamage(Load("weights/a", {0, 0}, {2, 5}), "overlap");
  ExpectDamage(Load("weights/a", {5, 0}, {1, 5}), "hold 0 of 5 elements");
}

TEST_F(RankManifestTest, LengthAndBothHalvesOfTheDigestCount) {
  Save(Cut::kRows);
  const std::function<void(RankEntry&)> changes[] = {[](RankEntry& rank) { ++rank.bytes; },
                                                     [](RankEntry& rank) { rank.digest[0] ^= 1; },
                                                     [](RankEntry& rank) { rank.digest[1] ^= 1; }};
  for (const auto& change : changes) {
    const Manifest root = Root();
    Manifest changed = root;
    change(changed.ranks[1]);
    Overwrite(base::JoinPath(folder_, kManifestName), ToJson(changed));
    ExpectDamage(LoadWhole("weights/a"), Path(1) + " is damaged");
    Overwrite(base::JoinPath(folder_, kManifestName), ToJson(root));
  }
  EXPECT_TRUE(LoadWhole("weights/a").ok());
}

// The root's ranges are what decides which manifests are read.
TEST_F(RankManifestTest, RangesThatDoNotFitAreDamage) {
  Save(Cut::kRows);
  Manifest root = Root();
  root.ranks[1].tensors = {{0, 0}, {2, 3}};
  Overwrite(base::JoinPath(folder_, kManifestName), ToJson(root));
  ExpectDamage(LoadWhole("weights/a"), "hold 10 of 30 elements");
  ExpectDamage(LoadWhole("weights/norm"), "weights/cube is not what");
}

// Ranks that save [4, 3] together, each as `change` has it.
std::vector<Status> SaveTogether(const std::string& directory,
                                 const std::function<void(int rank, SaveArgs*)>& change) {
  comm::ThreadsHub hub(comm::CommConfig{});
  std::vector<Status> statuses(3);
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const auto group =
          hub.Create({.name = "world", .members = {0, 1, 2}, .my_index = rank}).value();
      comm::InlineStream stream;
      const std::vector<float> values(12, 1.5F);
      SaveArgs args;
      args.directory = directory;
      args.manifest.step = args.manifest.epoch = 1;
      args.manifest.spec_json = "{}";
      args.group = group.get();
      args.stream = &stream;
      // The second one has nothing.
      if (rank != 1) {
        args.slices = {{.key = "weights/a",
                        .dtype = kernels::DType::kF32,
                        .global_shape = {4, 3},
                        .offset = {rank, 0},
                        .shape = {2, 3},
                        .data = values.data()}};
      }
      change(rank, &args);
      statuses[static_cast<size_t>(rank)] = SaveCheckpoint(args).status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

TEST_F(RankManifestTest, RanksThatDoNotFitTogetherSaveNothing) {
  const std::string directory = dir_.File("ckpt");
  const auto expect = [&](const std::function<void(int rank, SaveArgs*)>& change,
                          absl::StatusCode code, const std::string& word) {
    for (const Status& status : SaveTogether(directory, change)) {
      EXPECT_EQ(status.code(), code) << word << ": " << status;
      EXPECT_NE(base::Message(status).find(word), std::string::npos) << status;
    }
    EXPECT_TRUE(ListCheckpoints(directory)->empty()) << word;
    EXPECT_FALSE(base::Exists(directory + "/step-00000001-e0001.tmp")) << word;
  };
  const auto damage = absl::StatusCode::kDataLoss;
  const auto last = [](int rank, const std::function<void(SliceToSave&)>& change) {
    return [=](int r, SaveArgs* args) {
      if (r == rank) change(args->slices[0]);
    };
  };
  expect(last(2, [](SliceToSave& s) { s.offset = {1, 0}; }), damage, "overlap");
  expect(last(2, [](SliceToSave& s) { s.shape = {1, 3}; }), damage, "hold 9 of 12 elements");
  expect(last(0, [](SliceToSave& s) { s.offset = {3, 0}; }), damage, "reaches outside");
  const auto disagree = absl::StatusCode::kInternal;
  expect(last(2,
              [](SliceToSave& s) {
                s.dtype = kernels::DType::kF64;
                s.shape = {1, 3};
              }),
         disagree, "ranks disagree on the shape or type of weights/a");
  expect(last(2, [](SliceToSave& s) { s.global_shape = {4, 4}; }), disagree, "ranks disagree");
  // What is on disk is not what a rank has announced: found by the first one, told to all.
  for (const int broken : {0, 2}) {
    for (const bool gone : {false, true}) {
      expect(
          [&](int rank, SaveArgs* args) {
            args->failpoint = [=](std::string_view point) {
              const std::string path =
                  directory + "/step-00000001-e0001.tmp/" + RankManifestName(broken);
              if (point != "shard" || rank != broken) return OkStatus();
              if (gone) return std::filesystem::remove(path), OkStatus();
              return FlipBit(path, 100), OkStatus();
            };
          },
          damage, RankManifestName(broken) + (gone ? " is missing" : " is damaged"));
    }
  }
  // The last one has other tensors, too: of a, b, c, d and e all but b and d.
  const std::vector<double> zeros(4);
  const auto more = [&](int rank, SaveArgs* args) {
    for (const char* key : {"weights/b", "weights/c", "weights/d", "weights/e"}) {
      if (rank != (key[8] % 2 == 1 ? 2 : 0)) continue;
      args->slices.push_back({.key = key,
                              .dtype = kernels::DType::kF64,
                              .global_shape = {4},
                              .offset = {0},
                              .shape = {4},
                              .data = zeros.data()});
    }
  };
  for (const Status& status : SaveTogether(directory, more)) EXPECT_TRUE(status.ok()) << status;
  const auto whole = ReadWholeManifest(directory, {1, 1});
  ASSERT_TRUE(whole.ok()) << whole.status();
  ASSERT_EQ(whole->ranks.size(), 2U);
  EXPECT_EQ(whole->ranks[1].manifest, "rank-00002.json");
  EXPECT_EQ(whole->world_size, 3);
  EXPECT_EQ(whole->ranks[0].tensors, (Ranges{{0, 1}, {3, 3}}));
  EXPECT_EQ(whole->ranks[1].tensors, (Ranges{{0, 0}, {2, 2}, {4, 4}}));
  EXPECT_FALSE(base::Exists(directory + "/step-00000001-e0001/rank-00001.json"));
}

}  // namespace
}  // namespace mt::checkpoint
