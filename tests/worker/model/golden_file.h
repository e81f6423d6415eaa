// A file written by a script of tests/golden with PyTorch, and the comparison of a model with it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/worker/model/model_rig.h"

namespace mt::model {

// A safetensors file, read whole. CHECKs what only a wrong file can break.
class GoldenFile {
 public:
  // name: within tests/golden.
  explicit GoldenFile(const std::string& name);

  std::string Metadata(const std::string& key) const;
  int64_t Size(const std::string& key) const { return std::stoll(Metadata(key)); }
  std::vector<int32_t> Ints(const std::string& name) const;
  // F32 or F64, by the entry.
  std::vector<double> Doubles(const std::string& name) const;
  // Names that begin with `prefix`, without it.
  std::vector<std::string> NamesBehind(const std::string& prefix) const;
  // Of its tokens, labels and weights [s, b]; sample numbers from 0.
  data::Microbatch Batch() const;

 private:
  template <class T>
  std::vector<T> Read(const std::string& name) const;

  std::string file_;
  nlohmann::json header_;
  size_t data_ = 0;
};

// The loss relatively; each tensor of gradients by norm: |a - b| <= relative |b| + floor * largest
// |b|, since some true gradients are zero.
struct GoldenBounds {
  double loss = 0;
  double relative = 0;
  double floor = 0;
};

// After rig.Run of the file's batch: TakeSums against the tensor `loss`, and gradients against
// `grad_prefix` + name. Padded rows must be exactly zero.
void ExpectGolden(ModelRig* rig, const GoldenFile& file, const std::string& loss,
                  const std::string& grad_prefix, const GoldenBounds& bounds);

// Of the files of variants_torch.py and positions_torch.py: their variants' names, the network of
// one, and its weights.
std::vector<std::string> VariantNames(const GoldenFile& file);
GptConfig VariantConfig(const GoldenFile& file, const std::string& name, kernels::DType dtype);
void SetVariantWeights(const GoldenFile& file, ModelRig* rig);

}  // namespace mt::model
