// Against transformers: models that it wrote have its logits and loss here, and what is exported of
// them holds the tensors that it wrote, bit for bit. tests/golden/hf_transformers.py made the
// files.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/spec/print.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/worker/checkpoint/temp_dir.h"
#include "tests/worker/hf/hf_models.h"
#include "worker/checkpoint/inspect/place.h"
#include "worker/checkpoint/writer.h"
#include "worker/decode/decode_model.h"
#include "worker/hf/export.h"
#include "worker/hf/model_files.h"
#include "worker/model/gpt_config.h"

namespace mt::hf {
namespace {

using checkpoint::TempDir;
using Parameters = std::map<std::string, std::vector<float>>;

const std::vector<std::string>& Names() {
  static const std::vector<std::string> names = {
      "gpt2",  "llama2", "llama3", "llama3_old",    "mistral",
      "qwen2", "qwen3",  "neox",   "neox_parallel", "neox_parallel_old"};
  return names;
}

std::string Folder(const std::string& name) { return std::string(MT_GOLDEN_HF) + "/" + name; }

// A small job of the model.
megatrain::v1::JobSpec JobWith(const megatrain::v1::Model& model) {
  megatrain::v1::JobSpec job = JobOf("ffn_size: 32");
  *job.mutable_model() = model;
  const spec::Faults faults = spec::CompleteJob({}, &job);
  EXPECT_TRUE(faults.empty()) << spec::FormatFaults(faults);
  return job;
}

Parameters ReadAll(const ModelFiles& files) {
  Parameters out;
  for (const auto& [name, shape] : files.parameters()) {
    int64_t count = 1;
    for (const int64_t dim : shape) count *= dim;
    std::vector<float>& values = out[name];
    values.resize(static_cast<size_t>(count));
    const Status read = files.Read(name, {Shape(shape.size()), shape}, "F32",
                                   reinterpret_cast<std::byte*>(values.data()));
    EXPECT_TRUE(read.ok()) << read;
  }
  return out;
}

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

// The logits of every token, [tokens, V], of this engine.
std::vector<float> LogitsOf(const megatrain::v1::JobSpec& job, const Parameters& parameters,
                            const std::vector<int32_t>& tokens) {
  auto backend = kernels::cpu::MakeCpuBackend({.num_threads = 1});
  EXPECT_TRUE(backend.ok()) << backend.status();
  const auto stream = (*backend)->device().CreateStream(kernels::StreamPriority::kLow);
  auto model = decode::DecodeModel::Make(
      {.config = decode::DecodeConfig(model::ConfigFromJob(job), kernels::DType::kF32,
                                      std::ssize(tokens)),
       .memory_limit_bytes = int64_t{1} << 28,
       .backend = backend->get(),
       .stream = stream.get()});
  EXPECT_TRUE(model.ok()) << model.status();
  const decode::DecodeWeights& weights = (*model)->weights();
  for (const params::ParamSpec& spec : weights.registry().params()) {
    const kernels::Tensor to = weights.Weight(spec.name);
    const std::vector<float>& from = parameters.at(spec.name);
    EXPECT_EQ(std::ssize(from), to.shape.NumElements()) << spec.name;
    std::memcpy(to.data, from.data(), from.size() * sizeof(float));
  }
  std::vector<float> out;
  for (int32_t position = 0; position < std::ssize(tokens); ++position) {
    const decode::Row row{.token = tokens[static_cast<size_t>(position)], .position = position};
    (*model)->Forward({&row, 1});
    const int first = 0;
    const kernels::Tensor logits = (*model)->Logits({&first, 1});
    const auto* const values = logits.Data<float>();
    out.insert(out.end(), values, values + job.model().vocab_size());
  }
  return out;
}

float LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// Mean over the tokens behind the first, as transformers computes it.
double LossOf(const std::vector<float>& logits, const std::vector<int32_t>& tokens) {
  const size_t vocab = logits.size() / tokens.size();
  double sum = 0;
  for (size_t t = 0; t + 1 < tokens.size(); ++t) {
    double exps = 0;
    for (size_t v = 0; v < vocab; ++v) exps += std::exp(double{logits[t * vocab + v]});
    sum += std::log(exps) - double{logits[t * vocab + static_cast<size_t>(tokens[t + 1])]};
  }
  return sum / static_cast<double>(tokens.size() - 1);
}

// One rank's checkpoint of the parameters.
checkpoint::CheckpointPlace Save(const std::string& directory, const megatrain::v1::JobSpec& job,
                                 const Parameters& parameters) {
  checkpoint::SaveArgs args;
  args.directory = directory;
  args.manifest.step = 7;
  args.manifest.epoch = 1;
  args.manifest.spec_json = spec::ToJson(job);
  for (const auto& [name, shape] : ParametersOf(job.model())) {
    args.slices.push_back({.key = "weights/" + name,
                           .global_shape = shape,
                           .offset = Shape(shape.size()),
                           .shape = shape,
                           .data = parameters.at(name).data(),
                           .by_columns = name.ends_with("out.weight")});
  }
  const auto saved = checkpoint::SaveCheckpoint(args);
  EXPECT_TRUE(saved.ok()) << saved.status();
  return checkpoint::FindCheckpoint(saved->path).value();
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
  Parameters parameters;
  for (const auto& [name, shape] : ParametersOf(job.model())) {
    int64_t count = 1;
    for (const int64_t dim : shape) count *= dim;
    parameters[name].assign(static_cast<size_t>(count), 1.003907F);  // above a tie of bf16
  }
  const auto place = Save(dir.File("run"), job, parameters);
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
    EXPECT_FALSE(entry.path().string().ends_with(".partial")) << entry.path();
  EXPECT_TRUE(ModelFiles::Open(dir.File("hf")).ok());
}

TEST(HfExport, ADamagedCheckpointIsNotExported) {
  const TempDir dir;
  const auto job = JobOf("position: learned");
  Parameters parameters;
  for (const auto& [name, shape] : ParametersOf(job.model())) {
    int64_t count = 1;
    for (const int64_t dim : shape) count *= dim;
    parameters[name].assign(static_cast<size_t>(count), 1.0F);
  }
  const auto place = Save(dir.File("run"), job, parameters);
  std::string bytes = base::ReadFile(place.folder + "/rank-00000.safetensors").value();
  bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 1);
  ASSERT_TRUE(base::WriteFileAtomic(place.folder + "/rank-00000.safetensors", bytes).ok());
  const auto exported = Export({.from = place, .to = dir.File("hf")});
  EXPECT_TRUE(absl::IsDataLoss(exported.status())) << exported.status();
  EXPECT_TRUE(std::filesystem::is_empty(dir.File("hf")));
}

}  // namespace
}  // namespace mt::hf
