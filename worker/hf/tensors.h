// Where each parameter of a model lies in Hugging Face's files, and how: names, fused q, k, v,
// GPT-2's transposed matrices. One list serves both directions. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/hf/family.h"

namespace mt::hf {

using Shape = std::vector<int64_t>;

// Consecutive rows of a parameter; a vector's row is one element.
struct Rows {
  std::string parameter;  // "layers.0.ffn.up.weight"; empty: zeros, where the model has no bias
  int64_t first = 0;
  int64_t count = 0;
};

// A tensor of Hugging Face's.
struct HfTensor {
  std::string name;
  Shape shape;              // as it is stored there
  bool transposed = false;  // stored [inputs, outputs]; rows below are outputs
  bool gain = false;       // of a norm: 1 is added where the job's norm_one_plus stores g for 1 + g
  std::vector<Rows> rows;  // in order; together all of the tensor
};

// Parameters by name with their shapes, of the whole model and without padding: those that
// worker/model registers (worker/params/README.md, "Names"). The model is completed and has a
// vocabulary.
std::map<std::string, Shape> ParametersOf(const megatrain::v1::Model& model);

// The tensors of a model in the order in which they are written. A tied head is left out.
std::vector<HfTensor> TensorsOf(const megatrain::v1::Model& model, Family family);

// The name under which a family stores its output matrix, and its word embedding.
std::string HeadName(Family family);
std::string WordName(Family family);

// What a class holds besides parameters and older files have: masks, tables of rotations.
bool IsBuffer(Family family, const std::string& name);

// Where rows of a parameter come from.
struct Source {
  int64_t first = 0, count = 0;      // rows of the parameter
  const HfTensor* tensor = nullptr;  // of the list
  int64_t tensor_first = 0;  // the first of them there, as rows are counted in HfTensor::rows
};
// For each parameter that the list has, its sources in the order of its rows. Where a tensor has
// the rows of one that another has too (GPT-NeoX's second norm beside a parallel residual), the
// first is the source. The list outlives the result.
std::map<std::string, std::vector<Source>> SourcesOf(const std::vector<HfTensor>& tensors);

}  // namespace mt::hf
