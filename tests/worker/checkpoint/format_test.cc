// The pure parts of the format: folder names, manifests, safetensors files. Damage at any place
// must be an error and never a crash.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "common/base/ids.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/manifest.h"
#include "worker/checkpoint/format/safetensors.h"

namespace mt::checkpoint {
namespace {

Manifest SmallManifest() {
  Manifest m;
  m.step = 50;
  m.epoch = 3;
  m.job_uid = "uid";
  m.job_name = "demo";
  m.run = "11111111-1111-4111-8111-111111111111";
  m.parent_step = 20;
  m.parent_epoch = 2;
  m.created = "2026-01-02T03:04:05Z";
  m.world_size = 2;
  m.spec_json = R"({"model":{"layers":2}})";
  m.integers = {{"consumed_samples", std::numeric_limits<int64_t>::max()}, {"adam_step", -1}};
  m.reals = {{"lr", 0.1},
             {"third", 1.0 / 3},
             {"tiny", std::numeric_limits<double>::denorm_min()},
             {"nan", std::nan("")},
             {"inf", std::numeric_limits<double>::infinity()}};
  m.facts = {{"openblas_core", "Haswell"}};
  m.tensors["weights/a"] = {.dtype = "F32", .shape = {4, 3}, .slices = {}};
  m.tensors["weights/b"] = {.dtype = "F64", .shape = {}, .slices = {}};
  m.block_bytes = 16;
  m.ranks = {{"rank-00000.json", "rank-00000.safetensors", 100, {1, 2}, 1, {{0, 0}}},
             {"rank-00003.json", "rank-00003.safetensors", 200, {~0ULL, 1ULL << 60}, 2, {{0, 1}}}};
  return m;
}

// With slices of 24 bytes, two blocks each.
Manifest WithSlices() {
  Manifest m = SmallManifest();
  m.tensors.erase("weights/b");
  m.tensors["weights/a"].slices = {
      {"rank-00000.safetensors", "weights/a#0", {0, 0}, {2, 3}, {{0, 1}, {0, 2}}},
      {"rank-00001.safetensors", "weights/a#0", {2, 0}, {2, 3}, {{0, 3}, {0, 4}}}};
  return m;
}

TEST(FolderNameTest, RoundTripsAndRefusesOthers) {
  EXPECT_EQ(FolderName({.step = 1200, .epoch = 3}), "step-00001200-e0003");
  EXPECT_EQ(ParseFolderName("step-00001200-e0003"), (CheckpointId{1200, 3}));
  EXPECT_EQ(ParseFolderName(FolderName({123456789012, 12345})),
            (CheckpointId{123456789012, 12345}));
  for (const char* bad :
       {"", "step-", "step-1-e1", "step-00001200-e0003.tmp", "step-00001200", "step--0001200-e0003",
        "step-99999999999999999999999-e0001", "xstep-00001200-e0003"}) {
    EXPECT_FALSE(ParseFolderName(bad).has_value()) << bad;
  }
}

TEST(ManifestTest, EveryNumberComesBackBitForBit) {
  const Manifest m = SmallManifest();
  const auto back = ParseManifest(ToJson(m));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->step, 50);
  EXPECT_EQ(back->epoch, 3);
  EXPECT_EQ(back->parent_step, 20);
  EXPECT_EQ(back->parent_epoch, 2);
  EXPECT_EQ(back->run, SmallManifest().run);
  EXPECT_EQ(back->job_uid, "uid");
  EXPECT_EQ(back->spec_json, m.spec_json);
  EXPECT_EQ(back->integers, m.integers);
  EXPECT_EQ(back->facts, m.facts);
  for (const char* name : {"lr", "third", "tiny", "inf"})
    EXPECT_EQ(back->reals.at(name), m.reals.at(name)) << name;
  EXPECT_TRUE(std::isnan(back->reals.at("nan")));
  ASSERT_EQ(back->tensors.size(), 2U);
  EXPECT_EQ(back->tensors.at("weights/a").dtype, "F32");
  EXPECT_EQ(back->tensors.at("weights/a").shape, (std::vector<int64_t>{4, 3}));
  EXPECT_TRUE(back->tensors.at("weights/b").shape.empty());
  EXPECT_EQ(back->block_bytes, 16);
  ASSERT_EQ(back->ranks.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(back->ranks[i].manifest, m.ranks[i].manifest);
    EXPECT_EQ(back->ranks[i].file, m.ranks[i].file);
    EXPECT_EQ(back->ranks[i].bytes, m.ranks[i].bytes);
    EXPECT_EQ(back->ranks[i].digest, m.ranks[i].digest);
    EXPECT_EQ(back->ranks[i].num_slices, m.ranks[i].num_slices);
    EXPECT_EQ(back->ranks[i].tensors, m.ranks[i].tensors);
  }
  EXPECT_EQ(ToJson(*back), ToJson(m));
  // Numbers come as text, high half first.
  EXPECT_NE(ToJson(m).find("\"ffffffffffffffff1000000000000000\""), std::string::npos);
}

TEST(ManifestTest, ARunIsAnIdOrAbsentAsBefore) {
  Manifest m = SmallManifest();
  m.run = "run 1";
  EXPECT_TRUE(absl::IsDataLoss(ParseManifest(ToJson(m)).status()));
  m.run.clear();
  EXPECT_EQ(ToJson(m).find("\"run\""), std::string::npos);
  const auto back = ParseManifest(ToJson(m));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->run, "");
}

TEST(ManifestTest, SkippedStepsAreSaidWhereThereAreSome) {
  Manifest m = SmallManifest();
  EXPECT_EQ(ToJson(m).find("skipped_since_save"), std::string::npos);
  EXPECT_EQ(ToJson(m).find("spoiled"), std::string::npos);
  EXPECT_FALSE(ParseManifest(ToJson(m))->spoiled) << "of earlier versions";
  m.skipped_since_save = 12;
  m.spoiled = true;
  const auto back = ParseManifest(ToJson(m));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->skipped_since_save, 12);
  EXPECT_TRUE(back->spoiled);
}

TEST(ManifestTest, WhatRanksCannotBeIsDamage) {
  const auto broken = [](auto change) {
    Manifest m = SmallManifest();
    change(m);
    return ParseManifest(ToJson(m)).status().code();
  };
  EXPECT_EQ(broken([](Manifest&) {}), absl::StatusCode::kOk);
  const auto damage = absl::StatusCode::kDataLoss;
  EXPECT_EQ(broken([](Manifest& m) { m.ranks.pop_back(); }), damage) << "nobody has weights/b";
  EXPECT_EQ(broken([](Manifest& m) { m.ranks[1].tensors = {{0, 2}}; }), damage);
  EXPECT_EQ(broken([](Manifest& m) { m.ranks[1].tensors = {{1, 1}, {0, 0}}; }), damage);
  EXPECT_EQ(broken([](Manifest& m) { m.ranks[1].tensors = {{0, 1}, {1, 1}}; }), damage);
  EXPECT_EQ(broken([](Manifest& m) { m.ranks[1].tensors = {{1, 0}}; }), damage);
  EXPECT_EQ(broken([](Manifest& m) { m.ranks[1].tensors = {{-1, 1}}; }), damage);
  EXPECT_EQ(broken([](Manifest& m) { m.ranks[1].manifest = "../x"; }), damage);
  EXPECT_EQ(broken([](Manifest& m) { m.ranks[1].file = ".."; }), damage);
  EXPECT_EQ(broken([](Manifest& m) { m.block_bytes = 0; }), damage);
  EXPECT_EQ(broken([](Manifest& m) { m.block_bytes = -4; }), damage);
  EXPECT_EQ(broken([](Manifest& m) { m.tensors["weights/b"].dtype = "F8"; }), damage);
  // A tensor without an element is nobody's.
  EXPECT_EQ(broken([](Manifest& m) {
              m.tensors["weights/c"] = {"F32", {0, 2}, {}};
            }),
            absl::StatusCode::kOk);
}

TEST(ManifestTest, GapsOverlapsAndReachesOutsideAreDamage) {
  const auto broken = [](auto change) {
    Manifest m = WithSlices();
    change(m.tensors["weights/a"]);
    return CheckCoverage(m);
  };
  EXPECT_TRUE(broken([](TensorEntry&) {}).ok());
  EXPECT_FALSE(broken([](TensorEntry& t) { t.slices.pop_back(); }).ok());
  EXPECT_FALSE(broken([](TensorEntry& t) { t.slices[1].offset = {1, 0}; }).ok());
  EXPECT_FALSE(broken([](TensorEntry& t) { t.slices[1].shape = {3, 3}; }).ok());
  EXPECT_FALSE(broken([](TensorEntry& t) { t.slices[1].offset = {2}; }).ok());
  EXPECT_FALSE(broken([](TensorEntry& t) { t.slices[1].file = "../x"; }).ok());
  EXPECT_FALSE(broken([](TensorEntry& t) { t.dtype = "F8"; }).ok());
  EXPECT_FALSE(broken([](TensorEntry& t) { t.slices[1].digests.pop_back(); }).ok());
  EXPECT_FALSE(broken([](TensorEntry& t) { t.slices[0].digests.push_back({}); }).ok());
  EXPECT_FALSE(broken([](TensorEntry& t) {
                 t.slices[1].offset = {std::numeric_limits<int64_t>::max(), 0};
                 t.slices[1].shape = {std::numeric_limits<int64_t>::max(), 3};
               }).ok());
}

TEST(ManifestTest, AnyTruncationOrFlippedByteIsRefusedOrHarmless) {
  const std::string text = ToJson(SmallManifest());
  // Up to the closing brace; after it only the newline is left.
  for (size_t n = 0; n + 2 < text.size(); ++n)
    EXPECT_FALSE(ParseManifest(text.substr(0, n)).ok()) << n;
  for (size_t n = 0; n < text.size(); ++n) {
    std::string damaged = text;
    damaged[n] = static_cast<char>(damaged[n] ^ 0x15);
    (void)ParseManifest(damaged);  // no crash; the control plane has the digest
  }
  EXPECT_FALSE(ParseManifest("[]").ok());
  std::string newer = text;
  newer.replace(newer.find("\"version\": 2"), 12, "\"version\": 9");
  EXPECT_EQ(ParseManifest(newer).status().code(), absl::StatusCode::kFailedPrecondition);
  newer.replace(newer.find("\"version\": 9"), 12, "\"version\": 0");
  EXPECT_EQ(ParseManifest(newer).status().code(), absl::StatusCode::kDataLoss);
}

TEST(SafetensorsTest, RoundTripsWithAlignedDataAndDigests) {
  const TempDir dir;
  std::vector<float> a(6);
  std::iota(a.begin(), a.end(), 1.0F);
  const std::vector<double> b = {-1.5};
  const std::vector<TensorToWrite> tensors = {{"a", "F32", {2, 3}, a.data()},
                                              {"b", "F64", {}, b.data()}};
  const auto digests = WriteSafetensors(dir.File("x"), tensors, nullptr, nullptr);
  ASSERT_TRUE(digests.ok()) << digests.status();
  EXPECT_EQ((*digests)[0],
            BlockDigests{base::Hash128Of({reinterpret_cast<const char*>(a.data()), 24})});
  const auto reader = SafetensorsReader::Open(dir.File("x"));
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto& entry = reader->entries().at("a");
  EXPECT_EQ(entry.offset % 256, 0);
  EXPECT_EQ(entry.shape, (std::vector<int64_t>{2, 3}));
  std::vector<float> back(6);
  ASSERT_TRUE(reader->Read(entry, std::as_writable_bytes(std::span(back))).ok());
  EXPECT_EQ(back, a);
  // Never over an existing file.
  EXPECT_EQ(WriteSafetensors(dir.File("x"), tensors, nullptr, nullptr).status().code(),
            absl::StatusCode::kAlreadyExists);
}

TEST(SafetensorsTest, ManyThreadsWriteTheSameFile) {
  const TempDir dir;
  // Some of several pieces, some padded, one without an element.
  std::vector<float> memory((kLargestPieceBytes / 4) * 3 + 77);
  std::iota(memory.begin(), memory.end(), 0.5F);
  std::vector<TensorToWrite> tensors;
  for (int64_t i = 0; i < 40; ++i) {
    tensors.push_back({"t" + std::to_string(i), "F32", {100 + i, 3}, memory.data() + i});
    tensors.push_back({"p" + std::to_string(i),
                       "F32",
                       {60, 2},
                       memory.data() + 7 * i,
                       {.length = 2, .stride = 3}});
  }
  tensors.push_back({"large", "F32", {static_cast<int64_t>(memory.size())}, memory.data()});
  tensors.push_back({"none", "F32", {0, 4}, memory.data()});
  int64_t bytes = 0;
  const auto one = WriteSafetensors(dir.File("one"), tensors, [&](int64_t n) { bytes += n; });
  ASSERT_TRUE(one.ok()) << one.status();
  std::atomic<int64_t> others = 0;
  const auto four = WriteSafetensors(
      dir.File("four"), tensors, [&](int64_t n) { others += n; }, nullptr, /*threads=*/4);
  ASSERT_TRUE(four.ok()) << four.status();
  EXPECT_EQ(*four, *one);
  EXPECT_EQ(others, bytes);
  EXPECT_TRUE(*base::ReadFile(dir.File("four")) == *base::ReadFile(dir.File("one")));
}

TEST(SafetensorsTest, DamagedHeadersAreErrors) {
  const TempDir dir;
  const std::vector<float> a(4, 1.0F);
  ASSERT_TRUE(WriteSafetensors(dir.File("x"),
                               std::vector<TensorToWrite>{{"a", "F32", {4}, a.data()}}, nullptr,
                               nullptr)
                  .ok());
  const std::string whole = *base::ReadFile(dir.File("x"));
  const auto open = [&](const std::string& bytes) {
    std::ofstream(dir.File("y"), std::ios::binary | std::ios::trunc) << bytes;
    return SafetensorsReader::Open(dir.File("y"));
  };
  ASSERT_TRUE(open(whole).ok());
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_FALSE(open(whole.substr(0, n)).ok()) << n;
  for (size_t n = 0; n < whole.size() - 16; ++n) {
    std::string damaged = whole;
    damaged[n] = static_cast<char>(damaged[n] ^ 0xFF);
    const auto reader = open(damaged);
    if (!reader.ok()) continue;
    for (const auto& [name, entry] : reader->entries()) {
      EXPECT_LE(entry.offset + entry.bytes, static_cast<int64_t>(whole.size())) << name;
    }
  }
}

TEST(DirectoryTest, NewestIsByEpochThenStepAndUnfinishedOnesDoNotCount) {
  const TempDir dir;
  const auto make = [&](const std::string& name, bool manifest) {
    std::filesystem::create_directories(dir.File(name));
    if (manifest) std::ofstream(dir.File(name + "/manifest.json")) << "{}";
  };
  EXPECT_FALSE(FindNewest(dir.File("nowhere"))->has_value());
  EXPECT_EQ(*HighestEpoch(dir.File("nowhere")), 0);
  make("step-00000500-e0001", true);
  make("step-00000100-e0002", true);
  make("step-00000200-e0002", true);
  make("step-00000300-e0002", false);
  make("step-00000400-e0007.tmp", true);
  make("other", true);
  const auto all = ListCheckpoints(dir.path());
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(*all, (std::vector<CheckpointId>{{500, 1}, {100, 2}, {200, 2}}));
  EXPECT_EQ(FindNewest(dir.path())->value(), (CheckpointId{200, 2}));
  EXPECT_EQ(*HighestEpoch(dir.path()), 7);
  EXPECT_EQ(*FindByName(dir.path(), "100"), (CheckpointId{100, 2}));
  EXPECT_EQ(*FindByName(dir.path(), "step-00000500-e0001"), (CheckpointId{500, 1}));
  EXPECT_EQ(FindByName(dir.path(), "300").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace mt::checkpoint
