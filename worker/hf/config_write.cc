// nlohmann writes every double with a point or an exponent, which transformers 5 asks of fields
// that are floats.
#include "worker/hf/config_write.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "common/spec/derived.h"
#include "megatrain/v1/job.pb.h"

namespace mt::hf {
namespace {

using megatrain::v1::Model;
using nlohmann::ordered_json;
using Scaling = Model::Rope::Scaling;

ordered_json OrNull(std::optional<int64_t> token) {
  return token ? ordered_json(*token) : ordered_json(nullptr);
}

const char* GeluName(const Model& m) {
  return m.activation() == Model::ACTIVATION_GELU_ERF ? "gelu" : "gelu_new";
}

// The share of a head's channels that int(head_dim * share) makes the channels that the model
// rotates.
StatusOr<double> RotatedShare(const Model& m) {
  const auto d = static_cast<double>(spec::HeadDim(m));
  const double channels = std::floor(m.rope().percent() * d);
  if (std::fmod(channels, 2) != 0) {
    return base::FailedPrecondition(
        "model.rope.percent {} of {} channels is the odd number {}, of which the model rotates one "
        "less and GPT-NeoX one more: this model cannot be exported",
        m.rope().percent(), d, channels);
  }
  double share = channels / d;
  if (std::floor(share * d) < channels) share = std::nextafter(share, 2.0);
  return share;
}

ordered_json RopeParameters(const Model& m) {
  const auto& rope = m.rope();
  ordered_json out = {{"rope_theta", rope.base()}};
  switch (rope.scaling().type()) {
    case Scaling::TYPE_LINEAR:
      out["rope_type"] = "linear";
      out["factor"] = rope.scaling().factor();
      break;
    case Scaling::TYPE_LLAMA3:
      out["rope_type"] = "llama3";
      out["factor"] = rope.scaling().factor();
      out["low_freq_factor"] = rope.scaling().low_freq_factor();
      out["high_freq_factor"] = rope.scaling().high_freq_factor();
      out["original_max_position_embeddings"] = rope.scaling().original_positions();
      break;
    default:
      out["rope_type"] = "default";
  }
  return out;
}

void AddGpt2(const Model& m, ordered_json* out) {
  ordered_json& config = *out;
  config["n_embd"] = m.hidden_size();
  config["n_layer"] = m.layers();
  config["n_head"] = m.heads();
  config["n_inner"] = spec::FfnSize(m);
  config["n_positions"] = spec::MaxPositions(m);
  config["activation_function"] = GeluName(m);
  config["layer_norm_epsilon"] = m.norm_eps();
  config["resid_pdrop"] = m.hidden_dropout();
  config["embd_pdrop"] = m.hidden_dropout();
  config["attn_pdrop"] = m.attention_dropout();
  config["scale_attn_weights"] = true;
  config["scale_attn_by_inverse_layer_idx"] = false;
  config["reorder_and_upcast_attn"] = false;
  config["add_cross_attention"] = false;
}

void AddCommon(const Model& m, ordered_json* out) {
  ordered_json& config = *out;
  config["hidden_size"] = m.hidden_size();
  config["intermediate_size"] = spec::FfnSize(m);
  config["num_hidden_layers"] = m.layers();
  config["num_attention_heads"] = m.heads();
  config["max_position_embeddings"] = spec::MaxPositions(m);
  config["attention_dropout"] = m.attention_dropout();
  config["rope_parameters"] = RopeParameters(m);
}

Status AddGptNeox(const Model& m, ordered_json* out) {
  ordered_json& config = *out;
  ASSIGN_OR_RETURN(const double share, RotatedShare(m));
  AddCommon(m, out);
  config["rope_parameters"]["partial_rotary_factor"] = share;
  config["hidden_act"] = GeluName(m);
  config["layer_norm_eps"] = m.norm_eps();
  config["hidden_dropout"] = m.hidden_dropout();
  config["use_parallel_residual"] = m.parallel_residual();
  config["attention_bias"] = true;
  return OkStatus();
}

void AddLlama(const Model& m, Family family, ordered_json* out) {
  ordered_json& config = *out;
  AddCommon(m, out);
  config["num_key_value_heads"] = spec::KvHeads(m);
  config["head_dim"] = spec::HeadDim(m);
  config["hidden_act"] = m.activation() == Model::ACTIVATION_GEGLU ? "gelu_pytorch_tanh" : "silu";
  config["rms_norm_eps"] = m.norm_eps();
  const bool windowed = m.window() > 0;
  const ordered_json window = windowed ? ordered_json(m.window()) : ordered_json(nullptr);
  if (family == Family::kLlama) {
    config["attention_bias"] = m.bias() || m.qkv_bias();
    config["mlp_bias"] = m.bias();
    return;
  }
  config["sliding_window"] = window;
  if (family == Family::kMistral) return;
  if (family == Family::kQwen3) config["attention_bias"] = false;
  config["use_sliding_window"] = windowed;
  config["max_window_layers"] = windowed ? int64_t{0} : m.layers();
  config["layer_types"] = ordered_json::array();
  for (int64_t i = 0; i < m.layers(); ++i)
    config["layer_types"].push_back(windowed ? "sliding_attention" : "full_attention");
}

}  // namespace

StatusOr<std::string> ConfigText(const ConfigArgs& args) {
  const Model& m = *args.model;
  ordered_json config = {{"architectures", ordered_json::array({Architecture(args.family)})},
                         {"model_type", ModelType(args.family)},
                         {"dtype", args.dtype},
                         {"vocab_size", m.vocab_size()}};
  switch (args.family) {
    case Family::kGpt2:
      AddGpt2(m, &config);
      break;
    case Family::kGptNeox:
      RETURN_IF_ERROR(AddGptNeox(m, &config));
      break;
    default:
      AddLlama(m, args.family, &config);
  }
  config["initializer_range"] = m.init_std();
  config["tie_word_embeddings"] = m.tie_embeddings();
  config["use_cache"] = true;
  config["bos_token_id"] = OrNull(args.eos);
  config["eos_token_id"] = OrNull(args.eos);
  return config.dump(2) + "\n";
}

std::string GenerationConfigText(std::optional<int64_t> eos) {
  const ordered_json config = {{"bos_token_id", OrNull(eos)}, {"eos_token_id", OrNull(eos)}};
  return config.dump(2) + "\n";
}

}  // namespace mt::hf
