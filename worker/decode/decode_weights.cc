// Training's model lists the parameters; it is made for that and dropped.
#include "worker/decode/decode_weights.h"

#include <utility>

#include "common/base/check.h"
#include "common/base/math.h"
#include "worker/model/gpt_model.h"

namespace mt::decode {

using kernels::Tensor;
using params::ParamId;
using params::ParamSpec;

model::GptConfig TrainedDecodeConfig(model::GptConfig config, int64_t positions) {
  config.seq = positions;
  config.micro_batch = 1;
  config.reset_positions = false;  // a text is one document
  config.hidden_dropout = 0;
  config.attention_dropout = 0;
  config.recompute = {};
  config.shard.sequence_parallel = false;  // a step has too few rows to cut
  return config;
}

model::GptConfig DecodeConfig(model::GptConfig config, kernels::DType dtype, int64_t positions) {
  config = TrainedDecodeConfig(config, positions);
  config.stored_head_dim = 0;
  config.padded_vocab = config.vocab;
  config.dtype = dtype;
  config.shard = {};
  return config;
}

DecodeWeights::DecodeWeights(const model::GptConfig& config) : dtype_(config.dtype) {
  model::GptConfig listed = config;
  listed.head_chunk_tokens = 1;  // else the backend is asked
  model::GptModel(listed, nullptr, nullptr).RegisterParams(&registry_);
  const int64_t aligned = memory::kAlignBytes / SizeOf(dtype_);
  int64_t end = 0;
  for (const ParamSpec& spec : registry_.params()) {
    CHECK(spec.stored == spec.shape) << spec.name << " is stored with padding";
    if (!spec.joined) end = base::RoundUp(end, aligned);
    offsets_.push_back(end);
    end += spec.shape.NumElements();
  }
  bytes_ = end * SizeOf(dtype_);
}

void DecodeWeights::Plan(memory::MemoryPlan* plan) {
  block_ = plan->Reserve(memory::Kind::kWeights, bytes_);
}

void DecodeWeights::Bind(const memory::Memory& memory) {
  data_ = static_cast<char*>(memory.Data(block_));
}

Tensor DecodeWeights::Weight(ParamId id) const {
  CHECK(data_ != nullptr) << "Bind first";
  const int64_t offset = offsets_[static_cast<size_t>(id)];
  return {data_ + offset * SizeOf(dtype_), dtype_, registry_[id].shape};
}

Tensor DecodeWeights::Weight(std::string_view name) const {
  const auto id = registry_.Find(name);
  return id ? Weight(*id) : Tensor{};
}

Tensor DecodeWeights::Joined(std::string_view name) const {
  const auto id = registry_.Find(name);
  if (!id) return {};
  Tensor all = Weight(*id);
  for (auto next = static_cast<size_t>(*id) + 1; next < registry_.params().size(); ++next) {
    const ParamSpec& spec = registry_.params()[next];
    if (!spec.joined) break;
    all.shape = all.shape.rank() == 2 ? kernels::Shape{all.shape[0] + spec.shape[0], all.shape[1]}
                                      : kernels::Shape{all.shape[0] + spec.shape[0]};
  }
  return all;
}

}  // namespace mt::decode
