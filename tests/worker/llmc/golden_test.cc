// Against llm.c: files that were written by its format's description alone. That of version 3 its
// own program loads; of version 5, which that program does not load, it had the rounded weights as
// version 3. Both have its logits and loss here, and what is exported of them are the same bytes.
// tests/golden/llmc_numpy.py made the files.
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "tests/worker/hf/hf_models.h"
#include "tests/worker/hf/parameter_rig.h"
#include "worker/hf/config_read.h"
#include "worker/llmc/export.h"
#include "worker/llmc/model_file.h"

namespace mt::llmc {
namespace {

using checkpoint::TempDir;
using hf::Filled;
using hf::JobOf;
using hf::Parameters;

// Name of a file, and of its numbers in expected.json.
const std::vector<std::pair<std::string, std::string>>& Goldens() {
  static const std::vector<std::pair<std::string, std::string>> goldens = {
      {"small_f32.bin", "f32"}, {"small_bf16.bin", "bf16"}};
  return goldens;
}

// What is read at once: all of a tensor, or a row of it and ten elements of a vector.
constexpr int64_t kAtOnce[] = {kReadBytes, 40};

std::string Golden(const std::string& name) { return std::string(MT_GOLDEN_LLMC) + "/" + name; }

TEST(LlmcGolden, LogitsAndLossAreThoseOfLlmC) {
  const auto expected = nlohmann::json::parse(base::ReadFile(Golden("expected.json")).value());
  const auto tokens = expected.at("tokens").get<std::vector<int32_t>>();
  const std::vector<int32_t> inputs(tokens.begin(), tokens.end() - 1);
  for (const auto& [name, numbers] : Goldens()) {
    const auto its_logits = expected.at(numbers).at("logits").get<std::vector<float>>();
    for (const int64_t read_bytes : kAtOnce) {
      const auto file = ModelFile::Open(Golden(name), {}, read_bytes);
      ASSERT_TRUE(file.ok()) << file.status();
      EXPECT_TRUE(file->notes().empty());
      const auto job = hf::JobWith(file->model());
      std::vector<float> logits = hf::LogitsOf(job, hf::ReadAll(*file), inputs);
      EXPECT_LT(hf::LargestDifference(logits, its_logits), 1e-4F) << name << " " << read_bytes;
      logits.resize(logits.size() + 100);  // of the last token, which nothing follows
      EXPECT_NEAR(hf::LossOf(logits, tokens), expected.at(numbers).at("loss").get<double>(), 1e-5)
          << name;
    }
  }
}

// The same bytes out as in, with the whole buffer and with one of some rows; and what the other
// version has is rounded once. MT_LLMC_EXPORT=FOLDER keeps that of version 3 for `llmc_numpy.py
// check`.
TEST(LlmcGolden, ImportAndExportAreTheIdentity) {
  for (const auto& [name, numbers] : Goldens()) {
    const TempDir dir;
    const auto file = ModelFile::Open(Golden(name));
    ASSERT_TRUE(file.ok()) << file.status();
    const auto job = hf::JobWith(file->model());
    const auto place = hf::Save(dir.File("run"), job, hf::ReadAll(*file));
    const std::string dtype(TorchNameOf(file->header().version));
    for (const int64_t buffer : {kBufferBytes, int64_t{2000}}) {
      const auto exported = Export({.from = place,
                                    .to = dir.File("new/model.bin"),
                                    .dtype = dtype,
                                    .overwrite = buffer == 2000,
                                    .buffer_bytes = buffer});
      ASSERT_TRUE(exported.ok()) << exported.status();
      EXPECT_EQ(exported->file, dir.File("new/model.bin"));
      const std::string bytes = base::ReadFile(exported->file).value();
      EXPECT_EQ(exported->bytes, std::ssize(bytes));
      EXPECT_TRUE(bytes == base::ReadFile(Golden(name)).value()) << name;
      const char* const keep = std::getenv("MT_LLMC_EXPORT");
      if (keep != nullptr && numbers == "f32") {
        EXPECT_TRUE(base::WriteFileAtomic(std::string(keep) + "/" + name, bytes).ok());
      }
    }
    // Of the float32 masters the file of the other golden is made, bit for bit.
    if (numbers != "f32") continue;
    const auto rounded = Export({.from = place, .to = dir.File("bf16.bin"), .dtype = "bfloat16"});
    ASSERT_TRUE(rounded.ok()) << rounded.status();
    EXPECT_TRUE(base::ReadFile(rounded->file).value() ==
                base::ReadFile(Golden("small_bf16.bin")).value());
  }
}

// A box of the middle of a parameter is that part of the whole.
void ExpectPart(const ModelFile& file, const std::string& parameter,
                const std::vector<float>& whole) {
  const hf::Shape& shape = file.parameters().at(parameter);
  const bool matrix = shape.size() == 2;
  const int64_t columns = matrix ? shape[1] : 1;
  checkpoint::Box box{{shape[0] / 3}, {shape[0] / 2}};
  if (matrix) {
    box.offset.push_back(columns / 4);
    box.shape.push_back(columns / 2);
  }
  const int64_t width = matrix ? box.shape[1] : 1;
  std::vector<double> part(static_cast<size_t>(box.shape[0] * width));
  ASSERT_TRUE(file.Read(parameter, box, "F64", reinterpret_cast<std::byte*>(part.data())).ok());
  for (int64_t i = 0; i < std::ssize(part); ++i) {
    const int64_t at =
        (box.offset[0] + i / width) * columns + (matrix ? box.offset[1] : 0) + i % width;
    ASSERT_EQ(static_cast<float>(part[static_cast<size_t>(i)]), whole[static_cast<size_t>(at)])
        << parameter << " " << i;
  }
}

TEST(LlmcGolden, BoxesArePartsOfParameters) {
  for (const auto& [name, numbers] : Goldens()) {
    const auto file = ModelFile::Open(Golden(name));
    ASSERT_TRUE(file.ok()) << file.status();
    const Parameters whole = hf::ReadAll(*file);
    for (const int64_t read_bytes : kAtOnce) {
      const auto again = ModelFile::Open(Golden(name), {}, read_bytes);
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_TRUE(hf::ReadAll(*again) == whole) << name << " " << read_bytes;
      for (const auto& [parameter, values] : whole)
        ASSERT_NO_FATAL_FAILURE(ExpectPart(*again, parameter, values)) << name << read_bytes;
    }
  }
}

TEST(LlmcExport, NamesAndTypesThatLlmCTakes) {
  const TempDir dir;
  const auto job = JobOf("norm_one_plus: true, bias: false");
  const auto place = hf::Save(dir.File("run"), job, Filled(job, 1.003907F));  // above a tie of bf16
  // A folder that is there: the step's name. fp32 is what the job trains in.
  std::filesystem::create_directory(dir.File("out"));
  const auto first = Export({.from = place, .to = dir.File("out")});
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->file, dir.File("out/model_00000007.bin"));
  EXPECT_EQ(first->header.version, Version::kF32);
  ExportArgs args{.from = place, .to = first->file, .dtype = "bfloat16"};
  EXPECT_EQ(Export(args).status().code(), absl::StatusCode::kAlreadyExists);
  args.overwrite = true;
  ASSERT_TRUE(Export(args).ok());
  const auto file = ModelFile::Open(first->file);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->header().version, Version::kBf16);
  EXPECT_EQ(file->header().vocab, 96);
  const Parameters read = hf::ReadAll(*file);
  EXPECT_EQ(read.at("layers.0.ffn.up.weight")[0], 1.0078125F);
  EXPECT_EQ(read.at("final_norm.weight")[0], 2.0F) << "1 + g, rounded once";
  EXPECT_EQ(read.at("layers.1.attention.k.bias")[5], 0.0F) << "the model has none";
  for (const char* const wrong : {"float16", "float64", "int8"}) {
    args.dtype = wrong;
    EXPECT_TRUE(absl::IsInvalidArgument(Export(args).status())) << wrong;
  }
  for (const char* const name : {"model", "model.safetensors", "missing/"}) {
    const Status status = Export({.from = place, .to = dir.File(name)}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_NE(base::Message(status).find(".bin"), std::string::npos) << status;
  }
  EXPECT_FALSE(base::Exists(dir.File("missing")));
  EXPECT_TRUE(ModelFile::Open(first->file).ok()) << "what is there stays where it fails";
}

TEST(LlmcExport, AnotherNetworkOrADamagedCheckpointLeavesNoFile) {
  const TempDir dir;
  std::filesystem::create_directory(dir.File("out"));
  const auto other = JobOf("tie_embeddings: false");
  const auto untied = hf::Save(dir.File("untied"), other, Filled(other, 1));
  const Status refused = Export({.from = untied, .to = dir.File("out/a.bin")}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_NE(base::Message(refused).find("model.tie_embeddings"), std::string::npos) << refused;
  const auto job = JobOf("position: learned");
  const auto place = hf::Save(dir.File("run"), job, Filled(job, 1));
  const std::string data = place.folder + "/rank-00000.safetensors";
  std::string bytes = base::ReadFile(data).value();
  bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 1);
  ASSERT_TRUE(base::WriteFileAtomic(data, bytes).ok());
  const Status damaged = Export({.from = place, .to = dir.File("out/a.bin")}).status();
  EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
  EXPECT_TRUE(std::filesystem::is_empty(dir.File("out")));
}

}  // namespace
}  // namespace mt::llmc
