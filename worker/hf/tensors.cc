// Legend: h hidden, a heads and g key/value heads of d channels, f ffn, V vocabulary.
#include "worker/hf/tensors.h"

#include <utility>

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/spec/derived.h"
#include "megatrain/v1/job.pb.h"

namespace mt::hf {
namespace {

using megatrain::v1::Model;

// Sizes of a model, and which of its parameters are there.
struct Sizes {
  explicit Sizes(const Model& m)
      : layers(m.layers()),
        h(m.hidden_size()),
        d(spec::HeadDim(m)),
        a(m.heads()),
        q(a * d),
        k(spec::KvHeads(m) * d),
        f(spec::FfnSize(m)),
        vocab(m.vocab_size()),
        bias(m.bias()),
        qkv_bias(m.qkv_bias()),
        shift(m.norm() == Model::NORM_LAYERNORM) {}
  int64_t layers, h, d, a, q, k, f, vocab;
  bool bias, qkv_bias, shift;
};

// Adds tensors to a list.
class List {
 public:
  explicit List(std::vector<HfTensor>* out) : out_(out) {}

  // One parameter, as it is.
  void Add(const std::string& name, const std::string& parameter, Shape shape) {
    const int64_t rows = shape[0];
    out_->push_back({.name = name, .shape = std::move(shape), .rows = {{parameter, 0, rows}}});
  }
  // A norm, with a shift where `shift`.
  void Norm(const std::string& name, const std::string& parameter, int64_t h, bool shift) {
    Add(name + ".weight", parameter + ".weight", {h});
    out_->back().gain = true;
    if (shift) Add(name + ".bias", parameter + ".bias", {h});
  }
  // A matrix [out, in] of rows of parameters, and its bias: zeros where the model has none.
  // `bias`: whether the class has one.
  void Linear(const std::string& name, std::vector<Rows> rows, int64_t in, bool bias, bool has_bias,
              bool transposed = false) {
    int64_t out = 0;
    for (const Rows& run : rows) out += run.count;
    HfTensor matrix{.name = name + ".weight",
                    .shape = transposed ? Shape{in, out} : Shape{out, in},
                    .transposed = transposed,
                    .rows = rows};
    for (Rows& run : matrix.rows) run.parameter += ".weight";
    out_->push_back(std::move(matrix));
    if (!bias) return;
    for (Rows& run : rows) run.parameter = has_bias ? run.parameter + ".bias" : "";
    out_->push_back({.name = name + ".bias", .shape = {out}, .rows = std::move(rows)});
  }

 private:
  std::vector<HfTensor>* const out_;
};

void AddGpt2(const Model& m, std::vector<HfTensor>* out) {
  const Sizes s(m);
  List list(out);
  list.Add("transformer.wte.weight", "embedding.word.weight", {s.vocab, s.h});
  list.Add("transformer.wpe.weight", "embedding.position.weight", {spec::MaxPositions(m), s.h});
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string to = fmt::format("transformer.h.{}.", i);
    const std::string from = fmt::format("layers.{}.", i);
    list.Norm(to + "ln_1", from + "norm1", s.h, true);
    list.Linear(to + "attn.c_attn",
                {{from + "attention.q", 0, s.q},
                 {from + "attention.k", 0, s.k},
                 {from + "attention.v", 0, s.k}},
                s.h, true, s.qkv_bias, true);
    list.Linear(to + "attn.c_proj", {{from + "attention.out", 0, s.h}}, s.q, true, s.bias, true);
    list.Norm(to + "ln_2", from + "norm2", s.h, true);
    list.Linear(to + "mlp.c_fc", {{from + "ffn.up", 0, s.f}}, s.h, true, s.bias, true);
    list.Linear(to + "mlp.c_proj", {{from + "ffn.down", 0, s.h}}, s.f, true, s.bias, true);
  }
  list.Norm("transformer.ln_f", "final_norm", s.h, true);
}

// q, k and v of one head after another.
std::vector<Rows> ByHeads(const Sizes& s, const std::string& from) {
  std::vector<Rows> rows;
  for (int64_t head = 0; head < s.a; ++head) {
    for (const char* const part : {"q", "k", "v"})
      rows.push_back({from + "attention." + part, head * s.d, s.d});
  }
  return rows;
}

void AddGptNeox(const Model& m, std::vector<HfTensor>* out) {
  const Sizes s(m);
  List list(out);
  list.Add("gpt_neox.embed_in.weight", "embedding.word.weight", {s.vocab, s.h});
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string to = fmt::format("gpt_neox.layers.{}.", i);
    const std::string from = fmt::format("layers.{}.", i);
    list.Norm(to + "input_layernorm", from + "norm1", s.h, true);
    // Beside a parallel residual both branches read the one norm that the model has.
    list.Norm(to + "post_attention_layernorm", from + (m.parallel_residual() ? "norm1" : "norm2"),
              s.h, true);
    list.Linear(to + "attention.query_key_value", ByHeads(s, from), s.h, true, s.qkv_bias);
    list.Linear(to + "attention.dense", {{from + "attention.out", 0, s.h}}, s.q, true, s.bias);
    list.Linear(to + "mlp.dense_h_to_4h", {{from + "ffn.up", 0, s.f}}, s.h, true, s.bias);
    list.Linear(to + "mlp.dense_4h_to_h", {{from + "ffn.down", 0, s.h}}, s.f, true, s.bias);
  }
  list.Norm("gpt_neox.final_layer_norm", "final_norm", s.h, true);
}

void AddLlama(const Model& m, Family family, std::vector<HfTensor>* out) {
  const Sizes s(m);
  // Qwen2 has biases on q, k, v alone; Llama on all four or none, and on the feed-forward layer.
  const bool qkv = s.qkv_bias || s.bias;
  const bool output = qkv && family == Family::kLlama;
  List list(out);
  list.Add("model.embed_tokens.weight", "embedding.word.weight", {s.vocab, s.h});
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string to = fmt::format("model.layers.{}.", i);
    const std::string from = fmt::format("layers.{}.", i);
    const std::string attention = to + "self_attn.";
    list.Norm(to + "input_layernorm", from + "norm1", s.h, false);
    list.Linear(attention + "q_proj", {{from + "attention.q", 0, s.q}}, s.h, qkv, s.qkv_bias);
    list.Linear(attention + "k_proj", {{from + "attention.k", 0, s.k}}, s.h, qkv, s.qkv_bias);
    list.Linear(attention + "v_proj", {{from + "attention.v", 0, s.k}}, s.h, qkv, s.qkv_bias);
    if (m.qk_norm()) {
      list.Norm(attention + "q_norm", from + "attention.q_norm", s.d, false);
      list.Norm(attention + "k_norm", from + "attention.k_norm", s.d, false);
    }
    list.Linear(attention + "o_proj", {{from + "attention.out", 0, s.h}}, s.q, output, s.bias);
    list.Norm(to + "post_attention_layernorm", from + "norm2", s.h, false);
    list.Linear(to + "mlp.gate_proj", {{from + "ffn.gate", 0, s.f}}, s.h, s.bias, s.bias);
    list.Linear(to + "mlp.up_proj", {{from + "ffn.up", 0, s.f}}, s.h, s.bias, s.bias);
    list.Linear(to + "mlp.down_proj", {{from + "ffn.down", 0, s.h}}, s.f, s.bias, s.bias);
  }
  list.Norm("model.norm", "final_norm", s.h, false);
}

void AddLayerParameters(const Model& m, const std::string& prefix,
                        std::map<std::string, Shape>* out) {
  const Sizes s(m);
  const auto add = [&](const std::string& name, Shape shape) {
    out->emplace(prefix + name, std::move(shape));
  };
  const auto linear = [&](const std::string& name, int64_t outputs, int64_t inputs, bool bias) {
    add(name + ".weight", {outputs, inputs});
    if (bias) add(name + ".bias", {outputs});
  };
  const auto norm = [&](const std::string& name) {
    add(name + ".weight", {s.h});
    if (s.shift) add(name + ".bias", {s.h});
  };
  norm("norm1");
  linear("attention.q", s.q, s.h, s.qkv_bias);
  linear("attention.k", s.k, s.h, s.qkv_bias);
  linear("attention.v", s.k, s.h, s.qkv_bias);
  if (m.qk_norm()) {
    add("attention.q_norm.weight", {s.d});
    add("attention.k_norm.weight", {s.d});
  }
  linear("attention.out", s.h, s.q, s.bias);
  if (!m.parallel_residual()) norm("norm2");
  if (spec::IsGated(m)) linear("ffn.gate", s.f, s.h, s.bias);
  linear("ffn.up", s.f, s.h, s.bias);
  linear("ffn.down", s.h, s.f, s.bias);
}

}  // namespace

std::map<std::string, Shape> ParametersOf(const Model& m) {
  const Sizes s(m);
  CHECK_GT(s.vocab, 0) << "the vocabulary is settled before";
  std::map<std::string, Shape> out;
  out["embedding.word.weight"] = {s.vocab, s.h};
  if (m.position() == Model::POSITION_LEARNED)
    out["embedding.position.weight"] = {spec::MaxPositions(m), s.h};
  for (int64_t i = 0; i < s.layers; ++i) AddLayerParameters(m, fmt::format("layers.{}.", i), &out);
  out["final_norm.weight"] = {s.h};
  if (s.shift) out["final_norm.bias"] = {s.h};
  if (!m.tie_embeddings()) out["head.weight"] = {s.vocab, s.h};
  return out;
}

std::vector<HfTensor> TensorsOf(const Model& m, Family family) {
  std::vector<HfTensor> out;
  switch (family) {
    case Family::kGpt2:
      AddGpt2(m, &out);
      break;
    case Family::kGptNeox:
      AddGptNeox(m, &out);
      break;
    default:
      AddLlama(m, family, &out);
  }
  if (!m.tie_embeddings())
    List(&out).Add(HeadName(family), "head.weight", {m.vocab_size(), m.hidden_size()});
  return out;
}

std::string HeadName(Family family) {
  return family == Family::kGptNeox ? "embed_out.weight" : "lm_head.weight";
}

std::string WordName(Family family) {
  switch (family) {
    case Family::kGpt2:
      return "transformer.wte.weight";
    case Family::kGptNeox:
      return "gpt_neox.embed_in.weight";
    default:
      return "model.embed_tokens.weight";
  }
}

bool IsBuffer(Family family, const std::string& name) {
  if (name.ends_with(".rotary_emb.inv_freq")) return true;
  const std::string attention = family == Family::kGpt2 ? ".attn." : ".attention.";
  return (family == Family::kGpt2 || family == Family::kGptNeox) &&
         (name.ends_with(attention + "bias") || name.ends_with(attention + "masked_bias"));
}

std::map<std::string, std::vector<Source>> SourcesOf(const std::vector<HfTensor>& tensors) {
  std::map<std::string, std::vector<Source>> out;
  std::map<std::string, int64_t> known;  // rows of each parameter that have a source
  for (const HfTensor& tensor : tensors) {
    int64_t at = 0;
    for (const Rows& run : tensor.rows) {
      int64_t& next = known[run.parameter];
      if (!run.parameter.empty() && run.first == next) {
        out[run.parameter].push_back({run.first, run.count, &tensor, at});
        next += run.count;
      }
      at += run.count;
    }
  }
  return out;
}

}  // namespace mt::hf
