// Verification finds what is damaged, names it, and finds nothing else.
#include "worker/checkpoint/inspect/verify.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/checkpoint/saved_state.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/rank_manifest.h"

namespace mt::checkpoint {
namespace {

using testing::HasSubstr;

// Of the tensors of saved_state.h.
constexpr int64_t kStateBytes = 30 * 8 + 84 * 8 + 6 * 4 + 30 * 4;

class VerifyTest : public testing::Test {
 protected:
  std::string Save(int64_t step, Cut cut = Cut::kRows) const {
    return SaveState(dir_.path(), MakeState(step), cut);
  }
  const TempDir dir_;
};

TEST_F(VerifyTest, IntactOnesInEveryLayout) {
  VerifyArgs args{.threads = 3};
  int64_t step = 0;
  for (const Cut cut : {Cut::kWhole, Cut::kRows, Cut::kColumns, Cut::kBuckets})
    args.folders.push_back(Save(++step, cut));
  int64_t last = 0, total = 0;
  args.progress = [&](int64_t done, int64_t all) {
    EXPECT_GT(done, last);
    last = done;
    total = all;
  };
  const VerifyReport report = Verify(args);
  EXPECT_TRUE(report.damage.empty());
  EXPECT_EQ(report.num_checkpoints, 4);
  EXPECT_EQ(report.num_slices, 4 + 8 + 7 + (2 * 4 + 2 + 2));
  EXPECT_EQ(report.bytes, 4 * kStateBytes);
  EXPECT_EQ(last, report.bytes);
  EXPECT_EQ(total, report.bytes);
}

TEST_F(VerifyTest, NamesEachDamage) {
  const std::string flipped = Save(1), cut = Save(2), missing = Save(3), newer = Save(4),
                    other = Save(5), intact = Save(6);
  FlipBit(flipped + "/rank-00001.safetensors", -1);
  const std::string cut_file = cut + "/rank-00000.safetensors";
  std::filesystem::resize_file(cut_file, std::filesystem::file_size(cut_file) - 8);
  std::filesystem::remove(missing + "/rank-00001.safetensors");
  std::string text = base::ReadFile(newer + "/manifest.json").value();
  text.replace(text.find("\"version\": 2"), 12, "\"version\": 3");
  std::ofstream(newer + "/manifest.json", std::ios::trunc) << text;
  // Of another save: whole, but other slices.
  const std::string whole = SaveState(dir_.File("other"), MakeState(5), Cut::kColumns);
  std::filesystem::copy_file(whole + "/rank-00001.safetensors", other + "/rank-00001.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  const VerifyReport report =
      Verify({.folders = {flipped, cut, missing, newer, other, intact}, .threads = 2});
  EXPECT_EQ(report.num_checkpoints, 5);
  std::vector<std::string> seen;
  for (const Damage& damage : report.damage) {
    seen.push_back(damage.folder.substr(dir_.path().size() + 6, 8) + " " + damage.file + " " +
                   damage.slice);
  }
  EXPECT_THAT(seen,
              testing::ElementsAre("00000001 rank-00001.safetensors weights/norm[2:6]",
                                   "00000002 rank-00000.safetensors ",
                                   "00000003 rank-00001.safetensors ", "00000004 manifest.json ",
                                   "00000005 rank-00001.safetensors exp_avg/a[2:6, 0:5]",
                                   "00000005 rank-00001.safetensors weights/a[2:6, 0:5]",
                                   "00000005 rank-00001.safetensors weights/cube[2:7, 0:4, 0:3]",
                                   "00000005 rank-00001.safetensors weights/norm[2:6]"));
  ASSERT_EQ(report.damage.size(), 8U);
  EXPECT_THAT(report.damage[0].what, HasSubstr("the manifest says"));
  EXPECT_THAT(report.damage[1].what, HasSubstr("does not fit"));
  EXPECT_EQ(report.damage[2].what, "missing");
  EXPECT_THAT(report.damage[3].what, HasSubstr("format version 3"));
  EXPECT_THAT(report.damage[4].what, HasSubstr("does not hold it as the manifest says"));
}

TEST_F(VerifyTest, NamesEachDamageOfRanksManifests) {
  const std::string flipped = Save(1), missing = Save(2), extra = Save(3);
  FlipBit(flipped + "/rank-00001.json", 200);
  FlipBit(flipped + "/rank-00000.safetensors", -1);
  std::filesystem::remove(missing + "/rank-00000.json");
  for (const char* name : {"/rank-00002.json", "/rank-00007.safetensors"})
    std::filesystem::copy_file(extra + "/rank-00001.json", extra + name);
  const VerifyReport report = Verify({.folders = {flipped, missing, extra}, .threads = 2});
  std::vector<std::string> seen;
  for (const Damage& damage : report.damage) {
    seen.push_back(damage.folder.substr(dir_.path().size() + 6, 8) + " " + damage.file + " " +
                   damage.slice);
  }
  EXPECT_THAT(
      seen, testing::UnorderedElementsAre("00000001 rank-00001.json ",
                                          "00000001 rank-00000.safetensors weights/norm[0:2]",
                                          "00000002 rank-00000.json ", "00000003 rank-00002.json ",
                                          "00000003 rank-00007.safetensors "));
  for (const Damage& damage : report.damage) {
    if (damage.file == "rank-00001.json") {
      EXPECT_THAT(damage.what, HasSubstr("is damaged"));
    }
    if (damage.file == "rank-00000.json") {
      EXPECT_EQ(damage.what, "missing");
    }
    if (damage.folder == extra) {
      EXPECT_THAT(damage.what, HasSubstr("does not name it"));
    }
  }
  EXPECT_EQ(report.num_checkpoints, 3);
  EXPECT_EQ(report.num_slices, 4 + 4 + 8) << "what is known is read";
}

TEST_F(VerifyTest, TheBlockIsNamed) {
  SavedState state = MakeState(1);
  state.manifest.block_bytes = 64;
  const std::string folder = SaveState(dir_.path(), state, Cut::kWhole);
  // weights/norm is the last, weights/cube before it has 672 bytes: its last block.
  FlipBit(folder + "/rank-00000.safetensors", -6 * 4 - 1);
  const VerifyReport report = Verify({.folders = {folder}});
  ASSERT_EQ(report.damage.size(), 1U);
  EXPECT_EQ(report.damage[0].slice, "weights/cube[0:7, 0:4, 0:3]");
  EXPECT_THAT(report.damage[0].what, HasSubstr("of block 10 of 11 is"));
}

// Of ranks' manifests that fit their digests and not each other.
TEST_F(VerifyTest, AGapBetweenRanksIsNamed) {
  const std::string folder = Save(1);
  Manifest manifest = ReadManifest(dir_.path(), {1, 1}).value();
  const base::FileOpener open;
  TensorTable less = RankManifests(folder, manifest, open).Read(manifest.ranks[0]).value();
  less.at("weights/a").slices.clear();
  const std::string text = RankManifestText(less);
  manifest.ranks[0].bytes = std::ssize(text);
  manifest.ranks[0].digest = base::Hash128Of(text);
  ASSERT_TRUE(base::WriteFileAtomic(folder + "/rank-00000.json", text).ok());
  ASSERT_TRUE(base::WriteFileAtomic(folder + "/manifest.json", ToJson(manifest)).ok());
  const VerifyReport report = Verify({.folders = {folder}});
  ASSERT_EQ(report.damage.size(), 1U);
  EXPECT_EQ(report.damage[0].file, "manifest.json");
  EXPECT_THAT(report.damage[0].what, HasSubstr("weights/a"));
}

TEST_F(VerifyTest, ACheckpointUnderAnothersNameIsNamed) {
  const std::string renamed = dir_.File("step-00000007-e0001");
  std::filesystem::rename(Save(1), renamed);
  const VerifyReport report = Verify({.folders = {renamed}});
  ASSERT_EQ(report.damage.size(), 1U);
  EXPECT_EQ(report.damage[0].file, "manifest.json");
  EXPECT_EQ(report.damage[0].what, "of step 1, epoch 1: another checkpoint's");
}

TEST_F(VerifyTest, ARemovedOneIsNotDamaged) {
  const std::string kept = Save(1), removed = Save(2);
  std::filesystem::remove(removed + "/rank-00000.safetensors");
  VerifyArgs args{.folders = {kept, removed}};
  // As a run's prune does it, while this reads.
  args.progress = [&](int64_t, int64_t) { std::filesystem::remove_all(removed); };
  const VerifyReport report = Verify(args);
  EXPECT_TRUE(report.damage.empty());
  EXPECT_EQ(report.removed, (std::vector<std::string>{removed}));
}

TEST_F(VerifyTest, EveryFlippedBitOfTheDataIsFound) {
  const std::string folder = Save(1, Cut::kWhole);
  const std::string file = folder + "/rank-00000.safetensors";
  for (int64_t at = -kStateBytes; at < 0; at += 41) {
    FlipBit(file, at);
    EXPECT_EQ(Verify({.folders = {folder}}).damage.size(), 1U) << at;
    FlipBit(file, at);
  }
  EXPECT_TRUE(Verify({.folders = {folder}}).damage.empty());
}

// Whatever stands in a manifest: a fault, no crash.
TEST_F(VerifyTest, ADamagedManifestIsAFault) {
  const std::string folder = Save(1);
  const std::string path = folder + "/manifest.json";
  const std::string whole = base::ReadFile(path).value();
  for (size_t at = 0; at < whole.size(); at += 29) {
    std::ofstream(path, std::ios::trunc) << whole.substr(0, at);
    EXPECT_FALSE(Verify({.folders = {folder}}).damage.empty()) << at;
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 4);
    std::ofstream(path, std::ios::trunc) << flipped;
    (void)Verify({.folders = {folder}});
  }
  std::string huge = whole;
  const std::string shape = "\"shape\": [6]";
  ASSERT_NE(huge.find(shape), std::string::npos);
  huge.replace(huge.find(shape), shape.size(), "\"shape\": [4611686018427387904]");
  std::ofstream(path, std::ios::trunc) << huge;
  const VerifyReport report = Verify({.folders = {folder}});
  ASSERT_EQ(report.damage.size(), 1U);
  EXPECT_THAT(report.damage[0].what, HasSubstr("impossible shape"));
}

}  // namespace
}  // namespace mt::checkpoint
