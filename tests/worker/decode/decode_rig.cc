// The weights of a rig in fp64 are rounded to a model's type as a load rounds them.
#include "tests/worker/decode/decode_rig.h"

#include "common/base/check.h"

namespace mt::decode {

using kernels::ActKind;
using kernels::DType;
using kernels::NormKind;
using model::GptConfig;
using model::PositionKind;

namespace {

constexpr int64_t kPositions = 11;

void Rope(GptConfig* c, double percent = 1) {
  c->position = PositionKind::kRope;
  c->rope = {.head_dim = c->head_dim, .percent = percent, .base = 100};
}

void Llama(GptConfig* c) {
  Rope(c);
  c->norm = NormKind::kRmsNorm;
  c->activation = ActKind::kSwiglu;
  c->bias = c->qkv_bias = c->tie_embeddings = false;
  c->kv_heads = 2;
}

// fp64 values to a weight of any device.
void PutWeight(kernels::Backend& backend, kernels::Stream& stream,
               const std::vector<double>& values, const kernels::Tensor& to) {
  kernels::Device& device = backend.device();
  if (device.kind() == kernels::DeviceKind::kCpu) {
    backend.vector().Cast(stream, to, {const_cast<double*>(values.data()), DType::kF64, to.shape});
    return;
  }
  const std::vector<float> single(values.begin(), values.end());
  const auto bytes = static_cast<int64_t>(single.size() * sizeof(float));
  const auto piece = device.Allocate(bytes, kernels::MemoryKind::kDevice);
  device.Copy(stream, piece->data(), single.data(), bytes);
  backend.vector().Cast(stream, to, {piece->data(), DType::kF32, to.shape});
  stream.Synchronize();
}

}  // namespace

GptConfig Base() {
  return {.layers = 2,
          .hidden = 24,
          .heads = 4,
          .kv_heads = 4,
          .head_dim = 6,
          .ffn = 40,
          .vocab = 13,
          .padded_vocab = 16,
          .seq = kPositions,
          .micro_batch = 1,
          .max_positions = kPositions + 2,
          .init_std = 0.3,
          .dtype = kernels::DType::kF64};
}

const std::vector<Variant>& Variants() {
  static const std::vector<Variant> all = {
      {"gpt2", [](GptConfig*) {}},
      {"one_layer", [](GptConfig* c) { c->layers = 1; }},
      {"five_layers", [](GptConfig* c) { c->layers = 5; }},
      {"wide_heads", [](GptConfig* c) { c->head_dim = 40; }},
      {"no_positions", [](GptConfig* c) { c->position = PositionKind::kNone; }},
      {"rope", [](GptConfig* c) { Rope(c); }},
      {"rope_part", [](GptConfig* c) { Rope(c, 0.7); }},
      {"rope_linear",
       [](GptConfig* c) {
         Rope(c);
         c->rope.scaling = {.kind = kernels::RopeScalingKind::kLinear, .factor = 3};
       }},
      {"rope_llama3",
       [](GptConfig* c) {
         Rope(c);
         c->rope.scaling = {
             .kind = kernels::RopeScalingKind::kLlama3, .factor = 8, .original_positions = 16};
       }},
      {"alibi", [](GptConfig* c) { c->position = PositionKind::kAlibi; }},
      {"alibi_odd_heads",
       [](GptConfig* c) {
         c->position = PositionKind::kAlibi;
         c->heads = c->kv_heads = 3;
       }},
      {"alibi_window",
       [](GptConfig* c) {
         c->position = PositionKind::kAlibi;
         c->window = 4;
       }},
      {"window_1", [](GptConfig* c) { c->window = 1; }},
      {"window_5", [](GptConfig* c) { c->window = 5; }},
      {"window_whole", [](GptConfig* c) { c->window = kPositions; }},
      {"groups", [](GptConfig* c) { c->kv_heads = 2; }},
      {"one_group", [](GptConfig* c) { c->kv_heads = 1; }},
      {"qk_norm", [](GptConfig* c) { c->qk_norm = true; }},
      {"qk_norm_rope_groups",
       [](GptConfig* c) {
         Rope(c);
         c->qk_norm = true;
         c->kv_heads = 2;
       }},
      {"rms_norm", [](GptConfig* c) { c->norm = NormKind::kRmsNorm; }},
      {"one_plus", [](GptConfig* c) { c->norm_one_plus = c->qk_norm = true; }},
      {"eps", [](GptConfig* c) { c->norm_eps = 0.1; }},
      {"swiglu", [](GptConfig* c) { c->activation = ActKind::kSwiglu; }},
      {"geglu", [](GptConfig* c) { c->activation = ActKind::kGeglu; }},
      {"relu2", [](GptConfig* c) { c->activation = ActKind::kRelu2; }},
      {"gelu_erf", [](GptConfig* c) { c->activation = ActKind::kGeluErf; }},
      {"no_bias", [](GptConfig* c) { c->bias = c->qkv_bias = false; }},
      {"qkv_bias_only", [](GptConfig* c) { c->bias = false; }},
      {"untied", [](GptConfig* c) { c->tie_embeddings = false; }},
      {"parallel", [](GptConfig* c) { c->parallel_residual = true; }},
      {"parallel_rope_window",
       [](GptConfig* c) {
         Rope(c, 0.5);
         c->parallel_residual = true;
         c->bias = false;
         c->window = 3;
       }},
      {"llama", Llama},
      {"llama_window",
       [](GptConfig* c) {
         Llama(c);
         c->window = 6;
       }},
      {"padded_heads", [](GptConfig* c) { c->stored_head_dim = 16; }},
      {"dropouts_of_training",
       [](GptConfig* c) { c->hidden_dropout = c->attention_dropout = 0.2; }},
  };
  return all;
}

GptConfig ConfigOf(const Variant& variant) {
  GptConfig config = Base();
  variant.change(&config);
  return config;
}

std::unique_ptr<DecodeModel> MakeModel(model::ModelRig* rig, const GptConfig& trained, DType dtype,
                                       int64_t sequences, kernels::Backend* backend,
                                       kernels::Stream* stream, int64_t max_rows) {
  static const auto of_rig = rig->backend().device().CreateStream(kernels::StreamPriority::kLow);
  if (backend == nullptr) {
    backend = &rig->backend();
    stream = of_rig.get();
  }
  auto made = DecodeModel::Make({.config = DecodeConfig(trained, dtype, trained.seq),
                                 .sequences = sequences,
                                 .max_rows = max_rows,
                                 .memory_limit_bytes = int64_t{1} << 32,
                                 .backend = backend,
                                 .stream = stream});
  CHECK(made.ok()) << made.status().ToString();
  const params::Registry& registry = (*made)->weights().registry();
  CHECK_EQ(registry.size(), rig->registry().size());
  for (const params::ParamId id : rig->Ids()) {
    const params::ParamSpec& spec = rig->registry()[id];
    const std::vector<double> stored = rig->Weight(id);
    std::vector<double> held(static_cast<size_t>(spec.Held().NumElements()));
    // From runs with padding between them to a whole.
    const base::Runs places = spec.Places();
    for (size_t i = 0; i < held.size(); ++i)
      held[i] = stored[static_cast<size_t>(places.At(static_cast<int64_t>(i)))];
    const kernels::Tensor to = (*made)->weights().Weight(spec.name);
    CHECK(to.shape == spec.shape);
    PutWeight(*backend, *stream, held, to);
  }
  return *std::move(made);
}

void MakeWeightsUneven(model::ModelRig* rig) {
  uint32_t state = 12345;
  for (const params::ParamId id : rig->Ids()) {
    const params::ParamSpec& spec = rig->registry()[id];
    if (spec.shape.rank() == 2) continue;
    std::vector<double> values = rig->Weight(id);
    const base::Runs places = spec.Places();
    for (int64_t i = 0; i < spec.Held().NumElements(); ++i) {
      state = state * 1664525U + 1013904223U;
      values[static_cast<size_t>(places.At(i))] += static_cast<double>(state >> 8) * 0x1p-25 - 0.25;
    }
    rig->SetWeight(id, values);
  }
}

std::vector<int32_t> SomeTokens(const GptConfig& config, uint32_t seed) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < config.seq; ++i) {
    seed = seed * 1664525U + 1013904223U;
    tokens.push_back(static_cast<int32_t>((seed >> 8) % static_cast<uint32_t>(config.vocab)));
  }
  return tokens;
}

}  // namespace mt::decode
