// Positions and norm decide between GPT-2, GPT-NeoX and the Llama-like; of those, what Llama's own
// class lacks.
#include "worker/hf/family.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "common/base/check.h"
#include "common/spec/derived.h"
#include "megatrain/v1/job.pb.h"

namespace mt::hf {
namespace {

using megatrain::v1::Model;

struct Names {
  Family family;
  std::string_view type, architecture;
};
constexpr Names kNames[] = {{Family::kGpt2, "gpt2", "GPT2LMHeadModel"},
                            {Family::kLlama, "llama", "LlamaForCausalLM"},
                            {Family::kMistral, "mistral", "MistralForCausalLM"},
                            {Family::kQwen2, "qwen2", "Qwen2ForCausalLM"},
                            {Family::kQwen3, "qwen3", "Qwen3ForCausalLM"},
                            {Family::kGptNeox, "gpt_neox", "GPTNeoXForCausalLM"}};

const Names& NamesOf(Family family) { return *std::ranges::find(kNames, family, &Names::family); }

// Fields that have no name beside others.
class Refusals {
 public:
  explicit Refusals(std::string_view beside) : beside_(beside) {}

  void If(bool refused, std::string_view field) {
    if (refused) fields_.push_back(fmt::format("{} beside {}", field, beside_));
  }
  StatusOr<Family> Take(Family family) const {
    if (fields_.empty()) return family;
    return base::FailedPrecondition(
        "no model class of Hugging Face that is written here has {}: this model cannot be exported",
        fmt::join(fields_, ", or "));
  }

 private:
  std::string_view beside_;
  std::vector<std::string> fields_;
};

bool IsGelu(const Model& m) {
  return m.activation() == Model::ACTIVATION_GELU || m.activation() == Model::ACTIVATION_GELU_ERF;
}

// What GPT-2 and GPT-NeoX have in common.
void RefuseBesidePlainAttention(const Model& m, Refusals* refusals) {
  refusals->If(spec::KvHeads(m) != m.heads(), "model.kv_heads below model.heads");
  refusals->If(spec::HeadDim(m) * m.heads() != m.hidden_size(),
               "model.head_dim apart from hidden_size / heads");
  refusals->If(m.qk_norm(), "model.qk_norm: true");
  refusals->If(m.window() > 0, "model.window");
}

StatusOr<Family> Gpt2(const Model& m) {
  Refusals refusals("model.position: learned (GPT-2)");
  refusals.If(m.norm() != Model::NORM_LAYERNORM, "model.norm: rmsnorm");
  refusals.If(!IsGelu(m), "an activation other than gelu and gelu_erf (model.activation)");
  refusals.If(m.parallel_residual(), "model.parallel_residual: true");
  RefuseBesidePlainAttention(m, &refusals);
  return refusals.Take(Family::kGpt2);
}

StatusOr<Family> GptNeox(const Model& m) {
  Refusals refusals("model.position: rope with model.norm: layernorm (GPT-NeoX)");
  refusals.If(!IsGelu(m), "an activation other than gelu and gelu_erf (model.activation)");
  RefuseBesidePlainAttention(m, &refusals);
  return refusals.Take(Family::kGptNeox);
}

// Llama and those that differ from it: Mistral by the window, Qwen2 by biases of q, k, v alone,
// Qwen3 by the norm of queries and keys.
StatusOr<Family> LlamaLike(const Model& m) {
  Refusals refusals("model.position: rope with model.norm: rmsnorm (Llama, Mistral, Qwen)");
  refusals.If(!spec::IsGated(m), "an activation other than swiglu and geglu (model.activation)");
  refusals.If(m.rope().percent() != 1, "model.rope.percent below 1");
  refusals.If(m.parallel_residual(), "model.parallel_residual: true");
  if (m.qk_norm()) {
    refusals.If(m.bias() || m.qkv_bias(), "model.qk_norm: true with biases");
    return refusals.Take(Family::kQwen3);
  }
  if (!m.bias() && m.qkv_bias()) return refusals.Take(Family::kQwen2);
  if (m.window() == 0) return refusals.Take(Family::kLlama);
  refusals.If(m.bias(), "model.window with model.bias: true");
  return refusals.Take(Family::kMistral);
}

}  // namespace

std::string_view ModelType(Family family) { return NamesOf(family).type; }
std::string_view Architecture(Family family) { return NamesOf(family).architecture; }

std::optional<Family> FamilyOfType(std::string_view model_type) {
  const auto* const found = std::ranges::find(kNames, model_type, &Names::type);
  if (found == std::end(kNames)) return std::nullopt;
  return found->family;
}

StatusOr<Family> FamilyOf(const Model& m) {
  if (m.activation() == Model::ACTIVATION_RELU2) {
    return base::FailedPrecondition(
        "model.activation: relu2 has no name in the model classes of Hugging Face that are written "
        "here: this model cannot be exported");
  }
  switch (m.position()) {
    case Model::POSITION_LEARNED:
      return Gpt2(m);
    case Model::POSITION_ROPE:
      return m.norm() == Model::NORM_LAYERNORM ? GptNeox(m) : LlamaLike(m);
    default:
      return base::FailedPrecondition(
          "model.position: {} has no name in the model classes of Hugging Face that are written "
          "here: this model cannot be exported",
          m.position() == Model::POSITION_ALIBI ? "alibi" : "none");
  }
}

}  // namespace mt::hf
