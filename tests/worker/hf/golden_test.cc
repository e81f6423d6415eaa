// Against transformers: models that it wrote have its logits and loss here, and what is exported of
// them holds the tensors that it wrote, bit for bit. tests/golden/hf_transformers.py made the
// files.
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "tests/worker/hf/hf_models.h"
#include "tests/worker/hf/parameter_rig.h"
#include "worker/hf/export.h"
#include "worker/hf/model_files.h"

namespace mt::hf {
namespace {

using checkpoint::TempDir;

const std::vector<std::string>& Names() {
  static const std::vector<std::string> names = {
      "gpt2",  "llama2", "llama3", "llama3_old",    "mistral",
      "qwen2", "qwen3",  "neox",   "neox_parallel", "neox_parallel_old"};
  return names;
}

std::string Folder(const std::string& name) { return std::string(MT_GOLDEN_HF) + "/" + name; }

// Tokens, logits and loss as transformers has them.
struct Expected {
  std::vector<int32_t> tokens;
  std::vector<float> logits;
  float loss = 0;
};

template <class T>
std::vector<T> ReadTensor(const checkpoint::SafetensorsReader& reader, const std::string& name) {
  const auto& entry = reader.entries().at(name);
  std::vector<T> values(static_cast<size_t>(entry.bytes) / sizeof(T));
  EXPECT_TRUE(reader.Read(entry, std::as_writable_bytes(std::span(values))).ok());
  return values;
}

Expected ReadExpected(const std::string& name) {
  const auto reader =
      checkpoint::SafetensorsReader::OpenForeign(Folder(name) + "/expected.safetensors");
  EXPECT_TRUE(reader.ok()) << reader.status();
  return {.tokens = ReadTensor<int32_t>(*reader, "tokens"),
          .logits = ReadTensor<float>(*reader, "logits"),
          .loss = ReadTensor<float>(*reader, "loss").at(0)};
}

// A tensor's type, shape and bytes, of all files of a folder.
std::map<std::string, std::string> ContentOf(const std::string& folder) {
  const auto files = ShardFiles::Open(folder);
  EXPECT_TRUE(files.ok()) << files.status();
  std::map<std::string, std::string> out;
  for (const auto& [name, place] : files->tensors()) {
    std::string& text = out[name];
    text.resize(static_cast<size_t>(place.entry.bytes));
    EXPECT_TRUE(files->Read(place, 0, std::as_writable_bytes(std::span(text))).ok());
    text += place.entry.dtype + nlohmann::json(place.entry.shape).dump();
  }
  return out;
}

TEST(HfGolden, LogitsAndLossAreThoseOfTransformers) {
  for (const std::string& name : Names()) {
    const auto files = ModelFiles::Open(Folder(name));
    ASSERT_TRUE(files.ok()) << files.status();
    const Expected expected = ReadExpected(name);
    const std::vector<float> logits =
        LogitsOf(JobWith(*files->config().model), ReadAll(*files), expected.tokens);
    EXPECT_LT(LargestDifference(logits, expected.logits), 1e-4F) << name;
    EXPECT_NEAR(LossOf(logits, expected.tokens), double{expected.loss}, 1e-5) << name;
  }
}

// In one file and in shards, with the whole buffer and with one of some rows. MT_HF_EXPORT=FOLDER
// keeps the exports for `hf_transformers.py check`.
TEST(HfGolden, ExportHoldsTheTensorsThatTransformersWrote) {
  for (const std::string& name : Names()) {
    const TempDir dir;
    const auto files = ModelFiles::Open(Folder(name));
    ASSERT_TRUE(files.ok()) << files.status();
    const auto job = JobWith(*files->config().model);
    const auto place = Save(dir.File("run"), job, ReadAll(*files));
    if (const char* const keep = std::getenv("MT_HF_EXPORT")) {
      const std::string to = std::string(keep) + "/" + name;
      EXPECT_TRUE(Export({.from = place, .to = to, .overwrite = true}).ok()) << to;
    }
    for (const int64_t buffer : {kBufferBytes, int64_t{2000}}) {
      const auto exported = Export({.from = place,
                                    .to = dir.File("hf"),
                                    .max_shard_bytes = buffer == 2000 ? 20'000 : 1 << 30,
                                    .overwrite = buffer == 2000,
                                    .buffer_bytes = buffer});
      ASSERT_TRUE(exported.ok()) << exported.status();
      EXPECT_EQ(exported->family, files->config().family);
      EXPECT_EQ(exported->dtype, "float32");
      EXPECT_EQ(base::Exists(dir.File("hf/model.safetensors")), buffer != 2000) << "one form alone";
      const auto again = ModelFiles::Open(dir.File("hf"));
      ASSERT_TRUE(again.ok()) << again.status();
      EXPECT_TRUE(ModelDifferences(*again->config().model, job.model()).empty()) << name;
      EXPECT_EQ(ReadAll(*again), ReadAll(*files)) << name;
      if (name.starts_with("neox_parallel")) continue;  // its norms are folded
      EXPECT_EQ(ContentOf(dir.File("hf")), ContentOf(Folder(name))) << name;
    }
  }
}

// The folded norms are another network of the same function, so its logits are what counts.
TEST(HfGolden, ExportOfFoldedNormsHasTheLogitsOfTransformers) {
  const TempDir dir;
  const auto files = ModelFiles::Open(Folder("neox_parallel"));
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->notes().size(), 1U) << "the fold is said";
  const auto job = JobWith(*files->config().model);
  const auto place = Save(dir.File("run"), job, ReadAll(*files));
  ASSERT_TRUE(Export({.from = place, .to = dir.File("hf")}).ok());
  const auto again = ModelFiles::Open(dir.File("hf"));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->notes().empty());
  const Expected expected = ReadExpected("neox_parallel");
  const auto logits = LogitsOf(job, ReadAll(*again), expected.tokens);
  EXPECT_LT(LargestDifference(logits, expected.logits), 1e-4F);
}

// Any box is a part of the whole.
TEST(HfGolden, BoxesArePartsOfParameters) {
  for (const std::string& name :
       std::vector<std::string>{"gpt2", "neox", "neox_parallel", "llama3"}) {
    const auto files = ModelFiles::Open(Folder(name));
    ASSERT_TRUE(files.ok()) << files.status();
    const Parameters whole = ReadAll(*files);
    for (const auto& [parameter, shape] : files->parameters()) {
      const bool matrix = shape.size() == 2;
      const int64_t columns = matrix ? shape[1] : 1;
      checkpoint::Box box{{shape[0] / 3}, {shape[0] / 2}};
      if (matrix) {
        box.offset.push_back(columns / 4);
        box.shape.push_back(columns / 2);
      }
      const int64_t width = matrix ? box.shape[1] : 1;
      std::vector<double> part(static_cast<size_t>(box.shape[0] * width));
      ASSERT_TRUE(
          files->Read(parameter, box, "F64", reinterpret_cast<std::byte*>(part.data())).ok());
      for (int64_t i = 0; i < std::ssize(part); ++i) {
        const int64_t at =
            (box.offset[0] + i / width) * columns + (matrix ? box.offset[1] : 0) + i % width;
        ASSERT_EQ(static_cast<float>(part[static_cast<size_t>(i)]),
                  whole.at(parameter)[static_cast<size_t>(at)])
            << name << " " << parameter;
      }
    }
  }
}

TEST(HfExport, RoundsOnceAndKeepsWhatIsThere) {
  const TempDir dir;
  const auto job = JobOf(kLlamaModel + ", norm_one_plus: true");
  const auto place = Save(dir.File("run"), job, Filled(job, 1.003907F));  // above a tie of bf16
  const ExportArgs args{.from = place,
                        .to = dir.File("hf"),
                        .dtype = "bfloat16",
                        .texts = {{"tokenizer.json", "{}"}},
                        .eos = 3};
  ASSERT_TRUE(Export(args).ok());
  EXPECT_EQ(base::ReadFile(dir.File("hf/tokenizer.json")).value(), "{}");
  const auto config = nlohmann::json::parse(base::ReadFile(dir.File("hf/config.json")).value());
  EXPECT_EQ(config["dtype"], "bfloat16");
  const auto files = ModelFiles::Open(dir.File("hf"));
  ASSERT_TRUE(files.ok()) << files.status();
  const Parameters read = ReadAll(*files);
  EXPECT_EQ(read.at("layers.0.ffn.up.weight")[0], 1.0078125F);
  EXPECT_EQ(read.at("final_norm.weight")[0], 2.0F) << "1 + g, rounded once";
  // Another one needs the word, and leaves what is there where it fails.
  EXPECT_EQ(Export(args).status().code(), absl::StatusCode::kAlreadyExists);
  ExportArgs wrong = args;
  wrong.overwrite = true;
  wrong.dtype = "int8";
  EXPECT_TRUE(absl::IsInvalidArgument(Export(wrong).status()));
  for (const auto& entry : std::filesystem::directory_iterator(dir.File("hf")))
    EXPECT_EQ(entry.path().string().find(".partial"), std::string::npos) << entry.path();
  EXPECT_TRUE(ModelFiles::Open(dir.File("hf")).ok());
}

// 1 + g is no float, and a little above a tie of bf16.
TEST(HfExport, GainsAreRoundedOnce) {
  const TempDir dir;
  const auto job = JobOf(kLlamaModel + ", norm_one_plus: true");
  const auto place = Save(dir.File("run"), job, Filled(job, 0x1p-8F + 0x1p-31F));
  ASSERT_TRUE(Export({.from = place, .to = dir.File("hf"), .dtype = "bfloat16"}).ok());
  const auto files = ModelFiles::Open(dir.File("hf"));
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(ReadAll(*files).at("layers.1.norm2.weight")[3], 1.0078125F);
}

TEST(HfExport, ADamagedCheckpointIsNotExported) {
  const TempDir dir;
  const auto job = JobOf("position: learned");
  const auto place = Save(dir.File("run"), job, Filled(job, 1));
  std::string bytes = base::ReadFile(place.folder + "/rank-00000.safetensors").value();
  bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 1);
  ASSERT_TRUE(base::WriteFileAtomic(place.folder + "/rank-00000.safetensors", bytes).ok());
  const auto exported = Export({.from = place, .to = dir.File("hf")});
  EXPECT_TRUE(absl::IsDataLoss(exported.status())) << exported.status();
  EXPECT_TRUE(std::filesystem::is_empty(dir.File("hf")));
}

}  // namespace
}  // namespace mt::hf
