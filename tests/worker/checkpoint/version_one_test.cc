// Checkpoints of format version 1: a slice of any length has one digest, so that who wants some of
// it reads all of it. (tests/fixtures has checkpoints that version 0.1.0 has written.)
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "tests/worker/checkpoint/saved_state.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/safetensors.h"
#include "worker/checkpoint/inspect/summary.h"
#include "worker/checkpoint/inspect/verify.h"
#include "worker/checkpoint/loader.h"

namespace mt::checkpoint {
namespace {

using nlohmann::json;

// A vector of 10 MiB in two slices, of 9 MiB and the rest, which is more than the blocks of version
// 2 have.
class VersionOneTest : public testing::Test {
 protected:
  static constexpr int64_t kLong = 9 << 17, kAll = 10 << 17;
  static constexpr char kFile[] = "rank-00000.safetensors";

  VersionOneTest() : values_(kAll) {
    std::iota(values_.begin(), values_.end(), 0.5);
    std::filesystem::create_directories(folder_);
    const std::vector<TensorToWrite> tensors = {
        {"w#0", "F64", {kLong}, values_.data()},
        {"w#1", "F64", {kAll - kLong}, values_.data() + kLong}};
    EXPECT_TRUE(WriteSafetensors(folder_ + "/" + kFile, tensors, nullptr).ok());
    const auto slice = [&](int64_t from, int64_t count, const char* name) -> json {
      const std::string_view bytes(reinterpret_cast<const char*>(values_.data() + from),
                                   static_cast<size_t>(count) * sizeof(double));
      return {{"file", kFile},
              {"tensor", name},
              {"offset", {from}},
              {"shape", {count}},
              {"xxh3_128", base::Hash128Hex(bytes)}};
    };
    root_ = {{"format", "megatrain-checkpoint"},
             {"version", 1},
             {"step", 7},
             {"epoch", 1},
             {"created", "2026-01-02T03:04:05Z"},
             {"world_size", 1},
             {"job", {{"uid", "u"}, {"epoch", 0}, {"name", "n"}, {"spec", json::object()}}},
             {"integers", json::object()},
             {"reals", json::object()},
             {"facts", json::object()}};
    root_["tensors"]["w"] = {
        {"dtype", "F64"},
        {"shape", {kAll}},
        {"slices", {slice(0, kLong, "w#0"), slice(kLong, kAll - kLong, "w#1")}}};
    WriteRoot();
  }

  void WriteRoot() const {
    std::ofstream(folder_ + "/manifest.json", std::ios::trunc) << root_.dump(1);
  }

  // The elements [from, from + count); *read: bytes of slices that were read.
  Status Load(int64_t from, int64_t count, int64_t* read) const {
    ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(dir_.path(), {7, 1}));
    std::vector<double> out(static_cast<size_t>(count), -1);
    LoadArgs args{.directory = dir_.path(), .id = {7, 1}, .manifest = &manifest};
    args.progress = [read](int64_t bytes) { *read += bytes; };
    args.slices = {{.key = "w",
                    .dtype = kernels::DType::kF64,
                    .global_shape = {kAll},
                    .offset = {from},
                    .shape = {count},
                    .data = out.data()}};
    RETURN_IF_ERROR(LoadTensors(args));
    EXPECT_EQ(out, std::vector<double>(values_.begin() + from, values_.begin() + from + count));
    return OkStatus();
  }

  const TempDir dir_;
  const std::string folder_ = dir_.File("step-00000007-e0001");
  std::vector<double> values_;
  json root_;
};

TEST_F(VersionOneTest, SlicesAreReadWhole) {
  int64_t read = 0;
  ASSERT_TRUE(Load(kLong - 1, 1, &read).ok());
  EXPECT_EQ(read, kLong * 8);
  read = 0;
  ASSERT_TRUE(Load(kLong, 3, &read).ok());
  EXPECT_EQ(read, (kAll - kLong) * 8);
  read = 0;
  ASSERT_TRUE(Load(0, kAll, &read).ok());
  EXPECT_EQ(read, kAll * 8);
  const VerifyReport report = Verify({.folders = {folder_}});
  EXPECT_TRUE(report.damage.empty());
  EXPECT_EQ(report.bytes, kAll * 8);
  EXPECT_EQ(Summarize(ReadManifest(dir_.path(), {7, 1}).value()).num_slices, 2);
}

TEST_F(VersionOneTest, DamageAnywhereInASliceIsFoundByWhoWantsAnyOfIt) {
  FlipBit(folder_ + "/" + kFile, -(kAll - kLong) * 8 - 1);  // the last byte of the first slice
  int64_t read = 0;
  const Status loaded = Load(0, 1, &read);
  EXPECT_TRUE(absl::IsDataLoss(loaded)) << loaded;
  EXPECT_NE(base::Message(loaded).find("w#0 is damaged"), std::string::npos) << loaded;
  EXPECT_TRUE(Load(kLong, 1, &read).ok());
  EXPECT_EQ(Verify({.folders = {folder_}}).damage.size(), 1U);
}

TEST_F(VersionOneTest, GapsOverlapsAndWhatIsNoDigestAreDamage) {
  const json whole = root_;
  const auto expect_damage = [&](const std::function<void(json & slices)>& change) {
    root_ = whole;
    change(root_.at("tensors").at("w").at("slices"));
    WriteRoot();
    EXPECT_TRUE(absl::IsDataLoss(ReadManifest(dir_.path(), {7, 1}).status()));
  };
  expect_damage([](json& slices) { slices.erase(1); });
  expect_damage([](json& slices) { slices[1].at("offset")[0] = 5; });
  expect_damage([](json& slices) { slices[1].at("file") = "../x"; });
  expect_damage([](json& slices) { slices[1].at("xxh3_128") = "0"; });
  expect_damage([](json& slices) { slices[1].erase("xxh3_128"); });
}

}  // namespace
}  // namespace mt::checkpoint
