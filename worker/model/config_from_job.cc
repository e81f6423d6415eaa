// JobSpec -> GptConfig: the only file of this folder that knows the job's protobuf.
#include "common/base/check.h"
#include "common/spec/derived.h"
#include "megatrain/v1/job.pb.h"
#include "worker/model/gpt_config.h"

namespace mt::model {
namespace {

namespace v1 = megatrain::v1;

kernels::DType WeightType(v1::Training::Precision precision) {
  switch (precision) {
    case v1::Training::PRECISION_FP64:
      return kernels::DType::kF64;
    case v1::Training::PRECISION_FP32:
      return kernels::DType::kF32;
    case v1::Training::PRECISION_BF16:
      return kernels::DType::kBf16;
    case v1::Training::PRECISION_FP16:
      return kernels::DType::kF16;
    default:
      CHECK(false) << "precision " << static_cast<int>(precision) << " is not resolved";
      return kernels::DType::kF32;
  }
}

void CheckBuilt(const v1::Model& m) {
  CHECK(m.position() == v1::Model::POSITION_LEARNED && m.norm() == v1::Model::NORM_LAYERNORM &&
        m.activation() == v1::Model::ACTIVATION_GELU && m.bias() && m.tie_embeddings() &&
        spec::KvHeads(m) == m.heads())
      << "validation lets only GPT-2 and GPT-3 blocks pass: " << m.ShortDebugString();
}

}  // namespace

GptConfig ConfigFromJob(const v1::JobSpec& job) {
  const v1::Model& m = job.model();
  CheckBuilt(m);
  return {.layers = m.layers(),
          .hidden = m.hidden_size(),
          .heads = m.heads(),
          .kv_heads = spec::KvHeads(m),
          .head_dim = spec::HeadDim(m),
          .ffn = spec::FfnSize(m),
          .vocab = m.vocab_size(),
          .padded_vocab = spec::PaddedVocab(job),
          .seq = m.seq_length(),
          .micro_batch = job.training().micro_batch_size(),
          .max_positions = spec::MaxPositions(m),
          .norm_eps = m.norm_eps(),
          .hidden_dropout = m.hidden_dropout(),
          .attention_dropout = m.attention_dropout(),
          .init_std = m.init_std(),
          .scaled_init = m.scaled_init(),
          .dtype = WeightType(job.training().precision()),
          .seed = job.training().seed()};
}

}  // namespace mt::model
