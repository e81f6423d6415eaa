// Exports of llm.c's files: which version a job has, what two exports at once leave, in pieces of
// which size they are written.
#include "worker/llmc/export.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/files.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "tests/worker/hf/hf_models.h"
#include "tests/worker/hf/parameter_rig.h"
#include "worker/llmc/model_file.h"

namespace mt::llmc {
namespace {

using checkpoint::TempDir;
using hf::Filled;
using hf::JobOf;
using megatrain::v1::Training;

// bfloat16 where the job trains in it; float16 and float64 have no version of their own.
TEST(LlmcExport, TheVersionFollowsFromThePrecision) {
  const TempDir dir;
  const std::vector<std::pair<Training::Precision, Version>> versions = {
      {Training::PRECISION_BF16, Version::kBf16},
      {Training::PRECISION_FP16, Version::kF32},
      {Training::PRECISION_FP32, Version::kF32},
      {Training::PRECISION_FP64, Version::kF32}};
  for (const auto& [precision, version] : versions) {
    const std::string name = Training::Precision_Name(precision);
    auto job = JobOf("position: learned");
    job.mutable_training()->set_precision(precision);
    const auto place = hf::Save(dir.File(name), job, Filled(job, 1));
    const auto exported = Export({.from = place, .to = dir.File(name + ".bin")});
    ASSERT_TRUE(exported.ok()) << name << exported.status();
    EXPECT_EQ(exported->header.version, version) << name;
    const auto file = ModelFile::Open(exported->file);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->header().version, version) << name;
  }
}

// 1 + g is no float, and a little above a tie of bf16.
TEST(LlmcExport, GainsAreRoundedOnce) {
  const TempDir dir;
  const auto job = JobOf("norm_one_plus: true");
  const auto place = hf::Save(dir.File("run"), job, Filled(job, 0x1p-8F + 0x1p-31F));
  const auto exported = Export({.from = place, .to = dir.File("a.bin"), .dtype = "bfloat16"});
  ASSERT_TRUE(exported.ok()) << exported.status();
  const auto file = ModelFile::Open(exported->file);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(hf::ReadAll(*file).at("layers.1.norm2.weight")[3], 1.0078125F);
}

// A second export to the same name while the first is under way.
TEST(LlmcExport, OfTwoAtOnceOneIsThereAsAWhole) {
  const TempDir dir;
  const auto job = JobOf("position: learned");
  const auto zeros = hf::Save(dir.File("zeros"), job, Filled(job, 0));
  const auto ones = hf::Save(dir.File("ones"), job, Filled(job, 1));
  std::filesystem::create_directory(dir.File("out"));
  for (const bool overwrite : {false, true}) {
    const std::string to = dir.File("out/model.bin");
    ExportArgs late{.from = zeros, .to = to, .overwrite = overwrite};
    bool nested = false;
    late.progress = [&](int64_t /*done*/, int64_t /*total*/) {
      if (std::exchange(nested, true)) return;
      const auto other = Export({.from = ones, .to = to, .overwrite = overwrite});
      EXPECT_TRUE(other.ok()) << other.status();
    };
    const Status status = Export(late).status();
    EXPECT_EQ(status.code(), overwrite ? absl::StatusCode::kOk : absl::StatusCode::kAlreadyExists)
        << status;
    const auto file = ModelFile::Open(to);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(hf::ReadAll(*file).at("final_norm.bias").back(), overwrite ? 0.0F : 1.0F);
    const std::filesystem::directory_iterator files(dir.File("out"));
    EXPECT_EQ(std::distance(begin(files), end(files)), 1);
  }
}

// Padding and the biases of a model without are zeros, of which no more are in memory either.
TEST(LlmcExport, PiecesAreNoLargerThanTheBuffer) {
  const TempDir dir;
  const auto job = JobOf("bias: false");
  const auto place = hf::Save(dir.File("run"), job, Filled(job, 1));
  int64_t done = kHeaderBytes, largest = 0, total = 0;
  ExportArgs args{.from = place, .to = dir.File("small.bin"), .buffer_bytes = 1100};
  args.progress = [&](int64_t now, int64_t all) {
    largest = std::max(largest, now - std::exchange(done, now));
    total = all;
  };
  const auto exported = Export(args);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(largest, 1100) << "32 rows of padding are 4096 bytes";
  EXPECT_EQ(done, exported->bytes);
  EXPECT_EQ(total, exported->bytes);
  const auto whole = Export({.from = place, .to = dir.File("whole.bin")});
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_TRUE(base::ReadFile(exported->file).value() == base::ReadFile(whole->file).value());
}

}  // namespace
}  // namespace mt::llmc
