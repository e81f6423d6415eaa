// Parses the safetensors format by itself, so that the goldens do not depend on worker/checkpoint,
// builds the configs of variants, and compares gradients tensor by tensor.
#include "tests/worker/model/golden_file.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "common/base/check.h"
#include "tests/paths.h"

namespace mt::model {
namespace {

// One of `values`, which are the names that the script gives to the enumerators 0, 1, ...
template <class Enum>
Enum Named(const nlohmann::json& name, const std::vector<std::string>& values) {
  const auto found = std::find(values.begin(), values.end(), name.get<std::string>());
  CHECK(found != values.end()) << "unknown name " << name.dump();
  return static_cast<Enum>(found - values.begin());
}

kernels::RopeConfig RopeOf(const nlohmann::json& c) {
  return {.head_dim = c["head_dim"],
          .percent = c["rope_percent"],
          .base = c["rope_base"],
          .scaling = {
              .kind = Named<kernels::RopeScalingKind>(c["scaling"], {"none", "linear", "llama3"}),
              .factor = c["factor"],
              .low_freq_factor = c["low_freq_factor"],
              .high_freq_factor = c["high_freq_factor"],
              .original_positions = c["original_positions"]}};
}

GptConfig ConfigOfVariant(const GoldenFile& file, const nlohmann::json& c, kernels::DType dtype) {
  return {.layers = c["layers"],
          .hidden = c["hidden"],
          .heads = c["heads"],
          .kv_heads = c["kv_heads"],
          .head_dim = c["head_dim"],
          .ffn = c["ffn"],
          .vocab = file.Size("vocab"),
          .padded_vocab = 32,
          .seq = file.Size("seq"),
          .micro_batch = file.Size("batch"),
          .max_positions = file.Size("seq"),
          .position = Named<PositionKind>(c["position"], {"learned", "rope", "alibi", "none"}),
          .rope = RopeOf(c),
          .norm = Named<kernels::NormKind>(c["norm"], {"layernorm", "rmsnorm"}),
          .norm_one_plus = c["one_plus"],
          .norm_eps = c["eps"],
          .activation = Named<kernels::ActKind>(c["activation"],
                                                {"gelu", "swiglu", "geglu", "relu2", "gelu_erf"}),
          .bias = c["bias"],
          .qkv_bias = c["qkv_bias"],
          .qk_norm = c["qk_norm"],
          .tie_embeddings = c["tied"],
          .parallel_residual = c["parallel"],
          .window = c["window"],
          .dtype = dtype,
          .head_chunk_tokens = 16};
}

std::string WeightKey(const params::ParamSpec& spec) {
  std::string key = "weight/" + spec.name + "/" + std::to_string(spec.shape[0]);
  return spec.shape.rank() == 1 ? key : key + "x" + std::to_string(spec.shape[1]);
}

}  // namespace

GoldenFile::GoldenFile(const std::string& name) {
  const std::string path = std::string(MT_SOURCE_DIR) + "/tests/golden/" + name;
  std::ifstream in(path, std::ios::binary);
  file_.assign(std::istreambuf_iterator<char>(in), {});
  CHECK_GT(file_.size(), size_t{8}) << path;
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file_.data(), 8);
  header_ = nlohmann::json::parse(file_.substr(8, header_bytes));
  data_ = 8 + header_bytes;
}

std::string GoldenFile::Metadata(const std::string& key) const {
  return header_.at("__metadata__").at(key).get<std::string>();
}

template <class T>
std::vector<T> GoldenFile::Read(const std::string& name) const {
  const auto& entry = header_.at(name);
  const auto begin = entry["data_offsets"][0].get<size_t>();
  const auto end = entry["data_offsets"][1].get<size_t>();
  std::vector<T> out((end - begin) / sizeof(T));
  std::memcpy(out.data(), file_.data() + data_ + begin, end - begin);
  return out;
}

std::vector<int32_t> GoldenFile::Ints(const std::string& name) const { return Read<int32_t>(name); }

std::vector<double> GoldenFile::Doubles(const std::string& name) const {
  if (header_.at(name)["dtype"] == "F64") return Read<double>(name);
  const std::vector<float> values = Read<float>(name);
  return {values.begin(), values.end()};
}

std::vector<std::string> GoldenFile::NamesBehind(const std::string& prefix) const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : header_.items()) {
    if (name.starts_with(prefix)) names.push_back(name.substr(prefix.size()));
  }
  return names;
}

data::Microbatch GoldenFile::Batch() const {
  data::Microbatch batch;
  batch.s = Size("seq");
  batch.b = Size("batch");
  batch.tokens = Ints("tokens");
  batch.labels = Ints("labels");
  batch.weights = Read<float>("weights");
  for (int64_t i = 0; i < batch.b; ++i) batch.samples.push_back(i);
  data::SortTokens(&batch);
  return batch;
}

void ExpectGolden(ModelRig* rig, const GoldenFile& file, const std::string& loss,
                  const std::string& grad_prefix, const GoldenBounds& bounds) {
  const double want_loss = file.Doubles(loss)[0];
  EXPECT_NEAR(rig->TakeSums().loss, want_loss, bounds.loss * want_loss);
  double largest = 0;
  for (const params::ParamId id : rig->Ids()) {
    largest = std::max(largest, Norm(file.Doubles(grad_prefix + rig->NameOf(id))));
  }
  for (const params::ParamId id : rig->Ids()) {
    const std::vector<double> want = file.Doubles(grad_prefix + rig->NameOf(id));
    std::vector<double> got = rig->Grad(id);
    for (size_t i = want.size(); i < got.size(); ++i) {
      ASSERT_EQ(got[i], 0.0) << "padded row of " << rig->NameOf(id);
    }
    got.resize(want.size());
    EXPECT_LE(Distance(got, want), bounds.relative * Norm(want) + bounds.floor * largest)
        << rig->NameOf(id) << ": norm " << Norm(want) << ", largest " << largest;
  }
}

std::vector<std::string> VariantNames(const GoldenFile& file) {
  std::vector<std::string> names;
  const auto variants = nlohmann::json::parse(file.Metadata("variants"));
  for (const auto& [name, config] : variants.items()) names.push_back(name);
  return names;
}

GptConfig VariantConfig(const GoldenFile& file, const std::string& name, kernels::DType dtype) {
  return ConfigOfVariant(file, nlohmann::json::parse(file.Metadata("variants"))[name], dtype);
}

void SetVariantWeights(const GoldenFile& file, ModelRig* rig) {
  for (const params::ParamId id : rig->Ids())
    rig->SetWeight(id, file.Doubles(WeightKey(rig->registry()[id])));
}

}  // namespace mt::model
