// Translates JobSpec to GptConfig. The only file of this folder that knows the job's protobuf.
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

PositionKind Position(v1::Model::Position position) {
  switch (position) {
    case v1::Model::POSITION_LEARNED:
      return PositionKind::kLearned;
    case v1::Model::POSITION_ROPE:
      return PositionKind::kRope;
    case v1::Model::POSITION_ALIBI:
      return PositionKind::kAlibi;
    case v1::Model::POSITION_NONE:
      return PositionKind::kNone;
    default:
      CHECK(false) << "position " << static_cast<int>(position) << " is not resolved";
      return PositionKind::kLearned;
  }
}

// Slopes of ALiBi are of distances, which no restart changes; random tokens have no documents.
bool PositionsRestart(const v1::JobSpec& job) {
  const v1::Model::Position position = job.model().position();
  return job.data().reset_positions() && !job.data().mock() &&
         (position == v1::Model::POSITION_LEARNED || position == v1::Model::POSITION_ROPE);
}

kernels::NormKind Norm(v1::Model::Norm norm) {
  CHECK(norm == v1::Model::NORM_LAYERNORM || norm == v1::Model::NORM_RMSNORM)
      << "norm " << static_cast<int>(norm) << " is not resolved";
  return norm == v1::Model::NORM_RMSNORM ? kernels::NormKind::kRmsNorm
                                         : kernels::NormKind::kLayerNorm;
}

kernels::ActKind Activation(v1::Model::Activation activation) {
  switch (activation) {
    case v1::Model::ACTIVATION_GELU:
      return kernels::ActKind::kGelu;
    case v1::Model::ACTIVATION_SWIGLU:
      return kernels::ActKind::kSwiglu;
    case v1::Model::ACTIVATION_GEGLU:
      return kernels::ActKind::kGeglu;
    case v1::Model::ACTIVATION_RELU2:
      return kernels::ActKind::kRelu2;
    case v1::Model::ACTIVATION_GELU_ERF:
      return kernels::ActKind::kGeluErf;
    default:
      CHECK(false) << "activation " << static_cast<int>(activation) << " is not resolved";
      return kernels::ActKind::kGelu;
  }
}

kernels::RopeScaling Scaling(const v1::Model::Rope::Scaling& s) {
  using Scaling = v1::Model::Rope::Scaling;
  switch (s.type()) {
    case Scaling::TYPE_NONE:
      return {};
    case Scaling::TYPE_LINEAR:
      return {.kind = kernels::RopeScalingKind::kLinear, .factor = s.factor()};
    case Scaling::TYPE_LLAMA3:
      return {.kind = kernels::RopeScalingKind::kLlama3,
              .factor = s.factor(),
              .low_freq_factor = s.low_freq_factor(),
              .high_freq_factor = s.high_freq_factor(),
              .original_positions = s.original_positions()};
    default:
      CHECK(false) << "scaling " << static_cast<int>(s.type()) << " is not resolved";
      return {};
  }
}

kernels::RopeConfig Rope(const v1::Model& m) {
  if (m.position() != v1::Model::POSITION_ROPE) return {};
  return {.head_dim = spec::HeadDim(m),
          .percent = m.rope().percent(),
          .base = m.rope().base(),
          .scaling = Scaling(m.rope().scaling())};
}

Recompute RecomputeOf(const v1::Training::Recompute& r) {
  using Job = v1::Training::Recompute;
  switch (r.mode()) {
    case Job::MODE_NONE:
      return {};
    case Job::MODE_SELECTIVE:
      return {.mode = RecomputeMode::kSelective};
    case Job::MODE_FULL:
      CHECK(r.method() == Job::METHOD_UNIFORM || r.method() == Job::METHOD_BLOCK);
      return {.mode = RecomputeMode::kFull,
              .method = r.method() == Job::METHOD_BLOCK ? RecomputeMethod::kBlock
                                                        : RecomputeMethod::kUniform,
              .layers = r.layers()};
    default:
      CHECK(false) << "recompute mode " << static_cast<int>(r.mode()) << " is not resolved";
      return {};
  }
}

}  // namespace

GptConfig ConfigFromJob(const v1::JobSpec& job) {
  const v1::Model& m = job.model();
  CHECK(!m.moe().has_experts() && m.mtp_layers() == 0) << "validation lets no such job pass";
  return {.layers = m.layers(),
          .hidden = m.hidden_size(),
          .heads = m.heads(),
          .kv_heads = spec::KvHeads(m),
          .head_dim = spec::HeadDim(m),
          .stored_head_dim = spec::StoredHeadDim(job),
          .ffn = spec::FfnSize(m),
          .vocab = m.vocab_size(),
          .padded_vocab = spec::PaddedVocab(job),
          .seq = m.seq_length(),
          .micro_batch = job.training().micro_batch_size(),
          .max_positions = spec::MaxPositions(m),
          .position = Position(m.position()),
          .reset_positions = PositionsRestart(job),
          .rope = Rope(m),
          .norm = Norm(m.norm()),
          .norm_one_plus = m.norm_one_plus(),
          .norm_eps = m.norm_eps(),
          .activation = Activation(m.activation()),
          .bias = m.bias(),
          .qkv_bias = m.qkv_bias(),
          .qk_norm = m.qk_norm(),
          .tie_embeddings = m.tie_embeddings(),
          .parallel_residual = m.parallel_residual(),
          .window = m.window(),  // includes the query itself; unset: 0, no limit
          .hidden_dropout = m.hidden_dropout(),
          .attention_dropout = m.attention_dropout(),
          .init_std = m.init_std(),
          .scaled_init = m.scaled_init(),
          .dtype = WeightType(job.training().precision()),
          .seed = job.training().seed(),
          .recompute = RecomputeOf(job.training().recompute()),
          .deterministic = job.training().deterministic()};
}

}  // namespace mt::model
