// The weights of a whole network in host memory, for decoding: the parameters that training
// registers, under the same names and joined in the same way, without gradients or state. Legend: h
// hidden, V vocabulary.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/tensor.h"
#include "worker/decode/weight_source.h"
#include "worker/memory/memory.h"
#include "worker/model/gpt_config.h"
#include "worker/params/registry.h"

namespace mt::decode {

// The config by which one rank decodes a model that `config` trains: no shards, no padding, no
// dropout, room for `positions`.
model::GptConfig DecodeConfig(model::GptConfig config, kernels::DType dtype, int64_t positions);
// The same for a rank that decodes with the weights that it trains, as it stores them.
model::GptConfig TrainedDecodeConfig(model::GptConfig config, int64_t positions);

// Used by one thread until the weights are loaded, constant afterwards. Owns no memory.
class DecodeWeights final : public WeightSource {
 public:
  // `config` as DecodeConfig gives it.
  explicit DecodeWeights(const model::GptConfig& config);
  DecodeWeights(const DecodeWeights&) = delete;
  DecodeWeights& operator=(const DecodeWeights&) = delete;

  void Plan(memory::MemoryPlan* plan);
  // Binds the planned memory, which must outlive this object. All weights are zero.
  void Bind(const memory::Memory& memory);

  const params::Registry& registry() const { return registry_; }
  int64_t bytes() const { return bytes_; }
  // All of them, as they lie in memory.
  std::span<const char> memory() const { return {data_, static_cast<size_t>(bytes_)}; }
  // One parameter with its logical shape, to be filled in.
  kernels::Tensor Weight(params::ParamId id) const;
  kernels::Tensor Weight(std::string_view name) const override;
  kernels::Tensor Joined(std::string_view name) const override;

 private:
  params::Registry registry_;
  kernels::DType dtype_;
  std::vector<int64_t> offsets_;  // [parameter], in elements
  int64_t bytes_ = 0;
  memory::Block block_;
  char* data_ = nullptr;
};

}  // namespace mt::decode
