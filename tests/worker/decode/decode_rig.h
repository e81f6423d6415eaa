// Variants of a small model that decoding is held against training by, and models of their weights
// on any backend.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/worker/model/model_rig.h"
#include "worker/decode/decode_model.h"

namespace mt::decode {

// Eleven positions, thirteen tokens, fp64.
model::GptConfig Base();

struct Variant {
  std::string name;
  std::function<void(model::GptConfig*)> change;
};
const std::vector<Variant>& Variants();
model::GptConfig ConfigOf(const Variant& variant);

// A decoder with the rig's weights, on the rig's backend unless another is given.
std::unique_ptr<DecodeModel> MakeModel(model::ModelRig* rig, const model::GptConfig& trained,
                                       kernels::DType dtype, int64_t sequences,
                                       kernels::Backend* backend = nullptr,
                                       kernels::Stream* stream = nullptr,
                                       int64_t max_rows = DecodeModel::kMaxRows);

// Gains and biases that are not their initial 0 and 1.
void MakeWeightsUneven(model::ModelRig* rig);

// config.seq of them.
std::vector<int32_t> SomeTokens(const model::GptConfig& config, uint32_t seed);

}  // namespace mt::decode
