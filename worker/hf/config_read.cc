// Types are strict, since transformers 5 refuses what earlier versions rounded; a real may be
// written as an integer, which files of before have.
#include "worker/hf/config_read.h"

#include <algorithm>
#include <initializer_list>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/base/math.h"
#include "common/spec/derived.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"
#include "worker/checkpoint/format/json_text.h"
#include "worker/hf/config_fields.h"
#include "worker/hf/rope_read.h"

namespace mt::hf {
namespace {

using megatrain::v1::JobSpec;
using megatrain::v1::Model;
using nlohmann::json;
using Scaling = Model::Rope::Scaling;

// The ranges of job_training.proto, so that no product of two overflows.
constexpr int64_t kMaxLayers = 16384, kMaxHidden = 1048576, kMaxHeads = 65536;
constexpr int64_t kMaxFfn = 16777216, kMaxVocab = 268435456, kMaxPositions = 16777216;

// The names under which the tanh form of GELU goes, all the same function.
bool IsTanhGelu(std::string_view name) {
  return name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast";
}

// Reads one file.
class Reader {
 public:
  explicit Reader(const json& object) : object_(object), fields_(object) {}

  StatusOr<HfConfig> Read() {
    RETURN_IF_ERROR(ReadFamily());
    RefuseWhatIsNotBuilt();
    model_.set_vocab_size(fields_.Size("vocab_size", kMaxVocab));
    if (config_.family == Family::kGpt2) {
      ReadGpt2();
    } else {
      ReadCommon();
      if (config_.family == Family::kGptNeox)
        ReadGptNeox();
      else
        ReadLlama();
      ReadRopeFields();
    }
    model_.set_tie_embeddings(
        fields_.BoolOr("tie_word_embeddings", config_.family == Family::kGpt2));
    model_.set_init_std(fields_.Has("initializer_range")
                            ? fields_.Real(object_.at("initializer_range"), "initializer_range")
                            : 0.02);
    ReadTokens();
    return Finish();
  }

 private:
  Status ReadFamily() {
    const auto type = object_.find("model_type");
    if (type == object_.end() || !type->is_string())
      return base::InvalidArgument("model_type is missing: which class has these weights?");
    const auto family = FamilyOfType(type->get<std::string>());
    if (!family) {
      return base::FailedPrecondition(
          "model_type {} is not built: gpt2, llama, mistral, qwen2, qwen3, gpt_neox are",
          Shown(*type));
    }
    config_.family = *family;
    return OkStatus();
  }

  void RefuseWhatIsNotBuilt() {
    if (fields_.Has("quantization_config"))
      fields_.Refuse("quantization_config: quantised weights are not built");
    const auto classes = object_.find("architectures");
    if (classes == object_.end() || !classes->is_array() || classes->empty()) return;
    const std::string causal(Architecture(config_.family));
    // "GPT2Model", "LlamaModel": files of the network without a head.
    const size_t stem = causal.find(causal.ends_with("LMHeadModel") ? "LMHead" : "ForCausalLM");
    const std::string bare = causal.substr(0, stem) + "Model";
    const bool known = std::any_of(classes->begin(), classes->end(), [&](const json& name) {
      if (!name.is_string()) return false;
      const auto& text = name.get_ref<const std::string&>();
      return text == causal || text == bare;
    });
    if (!known) {
      fields_.Refuse(fmt::format("architectures {} is not built: {} is", Shown(*classes), causal));
    }
  }

  void RefuseUnless(const char* name, bool built) {
    const auto it = object_.find(name);
    if (it != object_.end() && *it != json(built))
      fields_.Refuse(fmt::format("{} {} is not built", name, Shown(*it)));
  }

  void ReadGpt2() {
    model_.set_hidden_size(fields_.Size("n_embd", kMaxHidden));
    model_.set_layers(fields_.Size("n_layer", kMaxLayers));
    model_.set_heads(fields_.Size("n_head", kMaxHeads));
    model_.set_ffn_size(fields_.Has("n_inner") ? fields_.Size("n_inner", kMaxFfn)
                                               : 4 * model_.hidden_size());
    model_.set_max_positions(fields_.Size("n_positions", kMaxPositions));
    SetGelu("activation_function", "gelu_new");
    SetLayerNorm("layer_norm_epsilon");
    SetBiases(true, true);
    model_.set_position(Model::POSITION_LEARNED);
    model_.set_hidden_dropout(fields_.Share("resid_pdrop"));
    model_.set_attention_dropout(fields_.Share("attn_pdrop"));
    if (fields_.Share("embd_pdrop") != model_.hidden_dropout())
      fields_.Say("embd_pdrop differs from resid_pdrop, which model.hidden_dropout is");
    RefuseUnless("scale_attn_weights", true);
    RefuseUnless("scale_attn_by_inverse_layer_idx", false);
    RefuseUnless("add_cross_attention", false);
  }

  // Of all families but GPT-2.
  void ReadCommon() {
    model_.set_hidden_size(fields_.Size("hidden_size", kMaxHidden));
    model_.set_layers(fields_.Size("num_hidden_layers", kMaxLayers));
    model_.set_heads(fields_.Size("num_attention_heads", kMaxHeads));
    model_.set_ffn_size(fields_.Size("intermediate_size", kMaxFfn));
    model_.set_max_positions(fields_.Size("max_position_embeddings", kMaxPositions));
    model_.set_attention_dropout(fields_.Share("attention_dropout"));
    model_.set_position(Model::POSITION_ROPE);
  }

  void ReadGptNeox() {
    SetGelu("hidden_act", "gelu");
    SetLayerNorm("layer_norm_eps");
    SetBiases(true, true);
    model_.set_hidden_dropout(fields_.Share("hidden_dropout"));
    model_.set_parallel_residual(fields_.BoolOr("use_parallel_residual", true));
    RefuseUnless("attention_bias", true);
  }

  void ReadLlama() {
    const Family family = config_.family;
    model_.set_norm(Model::NORM_RMSNORM);
    model_.set_norm_eps(fields_.RealOr("rms_norm_eps", 1e-6));
    // null means all heads in every family, absent means what the class has.
    const int64_t by_class = family == Family::kLlama     ? model_.heads()
                             : family == Family::kMistral ? 8
                                                          : 32;
    model_.set_kv_heads(
        fields_.SizeOr("num_key_value_heads", kMaxHeads,
                       object_.contains("num_key_value_heads") ? model_.heads() : by_class));
    const int64_t share = std::max<int64_t>(1, model_.hidden_size() / model_.heads());
    model_.set_head_dim(
        fields_.SizeOr("head_dim", kMaxHeads, family == Family::kQwen3 ? 128 : share));
    SetGatedActivation();
    bool bias = false, qkv_bias = false;
    if (family == Family::kLlama) {
      bias = fields_.BoolOr("mlp_bias", false);
      qkv_bias = fields_.BoolOr("attention_bias", false);
      if (bias != qkv_bias) {
        fields_.Refuse(fmt::format(
            "attention_bias {} with mlp_bias {}: biases of the one without the other are not built",
            qkv_bias, bias));
      }
    } else if (family == Family::kQwen2) {
      qkv_bias = true;
    } else if (family == Family::kQwen3) {
      RefuseUnless("attention_bias", false);
      model_.set_qk_norm(true);
    }
    SetBiases(bias, qkv_bias);
    ReadWindow();
  }

  void ReadWindow() {
    const Family family = config_.family;
    if (family == Family::kLlama) return;
    // Absent means the class's default, null means none.
    const auto it = object_.find("sliding_window");
    int64_t window = 4096;
    if (it == object_.end()) {
      if (family == Family::kMistral)
        fields_.Say("sliding_window is missing: 4096 as in its class");
    } else {
      window = it->is_null() ? 0 : fields_.Size("sliding_window", kMaxPositions);
    }
    if (family != Family::kMistral && !WindowIsUsed()) window = 0;
    if (window >= model_.max_positions()) {
      fields_.Say(fmt::format("the window of {} is no limit over {} positions", window,
                              model_.max_positions()));
      window = 0;
    }
    if (window > 0) model_.set_window(window);
  }

  // Of Qwen: layers from max_window_layers on, unless layer_types says which.
  bool WindowIsUsed() {
    const bool used =
        object_.contains("use_sliding_window") && fields_.BoolOr("use_sliding_window", false);
    int64_t windowed = 0;
    const auto types = object_.find("layer_types");
    if (types != object_.end() && types->is_array()) {
      int64_t full = 0;
      for (const json& kind : *types) {
        windowed += kind == json("sliding_attention") ? 1 : 0;
        full += kind == json("full_attention") ? 1 : 0;
      }
      if (windowed + full != model_.layers() ||
          static_cast<int64_t>(types->size()) != model_.layers())
        fields_.Fault("layer_types", "is no list of full_attention or sliding_attention by layer");
    } else if (used) {
      const auto first = object_.find("max_window_layers");
      int64_t from = 28;
      if (first != object_.end()) from = first->is_number_integer() ? first->get<int64_t>() : -1;
      if (from < 0) fields_.Fault("max_window_layers", "is no integer from 0 on");
      windowed = std::max<int64_t>(0, model_.layers() - std::max<int64_t>(0, from));
    }
    if (!used || windowed == 0) return false;
    if (windowed < model_.layers())
      fields_.Refuse("a sliding window on some layers and not on others is not built");
    return true;
  }

  void ReadRopeFields() {
    const RopeFields read = ReadRope(config_.family, object_, &fields_);
    Model::Rope* const rope = model_.mutable_rope();
    rope->set_base(read.base);
    rope->set_percent(read.percent);
    if (!read.linear && !read.llama3) return;
    Scaling* const scaling = rope->mutable_scaling();
    scaling->set_type(read.linear ? Scaling::TYPE_LINEAR : Scaling::TYPE_LLAMA3);
    scaling->set_factor(read.factor);
    if (!read.llama3) return;
    scaling->set_low_freq_factor(read.low_freq_factor);
    scaling->set_high_freq_factor(read.high_freq_factor);
    scaling->set_original_positions(read.original_positions);
  }

  void SetGelu(const char* name, std::string_view missing) {
    const std::string act = fields_.TextOr(name, missing);
    const bool exact = act == "gelu" || act == "gelu_python";
    model_.set_activation(exact ? Model::ACTIVATION_GELU_ERF : Model::ACTIVATION_GELU);
    if (!exact && !IsTanhGelu(act)) {
      fields_.Refuse(
          fmt::format("{} {} is not built: gelu is, and its tanh form gelu_new, "
                      "gelu_pytorch_tanh, gelu_fast",
                      name, Shown(act)));
    }
  }

  void SetGatedActivation() {
    const std::string act = fields_.TextOr("hidden_act", "silu");
    const bool gelu = IsTanhGelu(act);
    model_.set_activation(gelu ? Model::ACTIVATION_GEGLU : Model::ACTIVATION_SWIGLU);
    if (!gelu && act != "silu" && act != "swish") {
      fields_.Refuse(fmt::format("hidden_act {} is not built: silu and the tanh form of gelu are",
                                 Shown(act)));
    }
  }

  void SetLayerNorm(const char* eps) {
    model_.set_norm(Model::NORM_LAYERNORM);
    model_.set_norm_eps(fields_.RealOr(eps, 1e-5));
  }

  void SetBiases(bool bias, bool qkv_bias) {
    model_.set_bias(bias);
    model_.set_qkv_bias(qkv_bias);
  }

  void ReadTokens() {
    const char* const dtype = fields_.Has("dtype") ? "dtype" : "torch_dtype";
    if (fields_.Has(dtype)) config_.dtype = fields_.TextOr(dtype, "");
    if (!fields_.Has("eos_token_id")) return;
    json eos = object_.at("eos_token_id");
    if (eos.is_array() && !eos.empty()) eos = json(eos.at(0));
    if (!eos.is_number_integer() || eos.get<int64_t>() < 0 ||
        eos.get<int64_t>() >= model_.vocab_size()) {
      return fields_.Say("eos_token_id is no token of the vocabulary, and is not taken");
    }
    config_.eos = eos.get<int64_t>();
  }

  StatusOr<HfConfig> Finish() {
    if (!fields_.faults().empty())
      return base::InvalidArgument("{}", fmt::join(fields_.faults(), "; "));
    if (!fields_.refusals().empty())
      return base::FailedPrecondition("{}", fmt::join(fields_.refusals(), "; "));
    ASSIGN_OR_RETURN(config_.model, CompleteModel(model_));
    config_.notes = fields_.notes();
    return std::move(config_);
  }

  const json& object_;
  ConfigFields fields_;
  Model model_;
  HfConfig config_;
};

}  // namespace

StatusOr<std::shared_ptr<const Model>> CompleteModel(const Model& model) {
  JobSpec job;
  job.set_name("imported");
  *job.mutable_model() = model;
  job.mutable_model()->set_seq_length(std::min(model.max_positions(), kSeqLength));
  job.mutable_data()->set_mock(true);
  job.mutable_training()->set_micro_batch_size(1);
  job.mutable_training()->set_train_iters(1);
  job.mutable_optimizer()->set_lr(1e-4);
  const Status completed = spec::ToStatus(spec::CompleteJob({}, &job));
  if (completed.ok()) return std::make_shared<const Model>(job.model());
  return base::FailedPrecondition("what it says is no model of a job: {}",
                                  base::Message(completed));
}

StatusOr<HfConfig> ParseConfig(std::string_view text) {
  if (text.size() > kMaxConfigBytes) {
    return base::InvalidArgument("{} bytes are more than a config.json has ({})", text.size(),
                                 kMaxConfigBytes);
  }
  const json object = checkpoint::ParseJson(text);
  if (!object.is_object()) return base::InvalidArgument("it is no JSON object");
  return Reader(object).Read();
}

}  // namespace mt::hf
