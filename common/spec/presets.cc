// The table of presets, and its application to a model section.
#include "common/spec/presets.h"

#include "megatrain/v1/job.pb.h"

namespace mt::spec {
namespace {

using megatrain::v1::Model;

constexpr int64_t kGpt2Vocab = 50257;
constexpr int64_t kPaperVocab = 51200;
constexpr int64_t kLlama2Vocab = 32000;
constexpr int64_t kLlama3Vocab = 128256;

// Columns: name, layers, hidden size, heads, sequence length, vocabulary; for Llama also key/value
// heads, feed-forward width, rotary base. Sources: GPT-3 from Brown et al. 2020, table 2.1, except
// 13b, whose width of 5140 there is not a multiple of its heads; GPT-2 from the published
// checkpoints; gpt-* from Narayanan et al. 2021, table 1; llama* from Touvron et al. 2023, Dubey et
// al. 2024 and the configurations published with the weights (norm_eps 1e-5, the default, in all);
// tinyllama from Zhang et al. 2024.
constexpr Preset kPresets[] = {
    {"tiny", 4, 128, 4, 64, 0},
    {"gpt2-124m", 12, 768, 12, 1024, kGpt2Vocab},
    {"gpt2-355m", 24, 1024, 16, 1024, kGpt2Vocab},
    {"gpt2-774m", 36, 1280, 20, 1024, kGpt2Vocab},
    {"gpt2-1558m", 48, 1600, 25, 1024, kGpt2Vocab},
    {"gpt3-125m", 12, 768, 12, 2048, kGpt2Vocab},
    {"gpt3-350m", 24, 1024, 16, 2048, kGpt2Vocab},
    {"gpt3-760m", 24, 1536, 16, 2048, kGpt2Vocab},
    {"gpt3-1.3b", 24, 2048, 16, 2048, kGpt2Vocab},
    {"gpt3-2.7b", 32, 2560, 32, 2048, kGpt2Vocab},
    {"gpt3-6.7b", 32, 4096, 32, 2048, kGpt2Vocab},
    {"gpt3-13b", 40, 5120, 40, 2048, kGpt2Vocab},
    {"gpt3-175b", 96, 12288, 96, 2048, kGpt2Vocab},
    {"gpt-1.7b", 24, 2304, 24, 2048, kPaperVocab},
    {"gpt-3.6b", 30, 3072, 32, 2048, kPaperVocab},
    {"gpt-7.5b", 36, 4096, 32, 2048, kPaperVocab},
    {"gpt-18b", 40, 6144, 48, 2048, kPaperVocab},
    {"gpt-39b", 48, 8192, 64, 2048, kPaperVocab},
    {"gpt-76b", 60, 10240, 80, 2048, kPaperVocab},
    {"gpt-145b", 80, 12288, 96, 2048, kPaperVocab},
    {"gpt-310b", 96, 16384, 128, 2048, kPaperVocab},
    {"gpt-530b", 105, 20480, 128, 2048, kPaperVocab},
    {"gpt-1t", 128, 25600, 160, 2048, kPaperVocab},
    {"tinyllama-1.1b", 22, 2048, 32, 2048, kLlama2Vocab, 4, 5632, 10000},
    {"llama2-7b", 32, 4096, 32, 4096, kLlama2Vocab, 32, 11008, 10000},
    {"llama2-13b", 40, 5120, 40, 4096, kLlama2Vocab, 40, 13824, 10000},
    {"llama2-70b", 80, 8192, 64, 4096, kLlama2Vocab, 8, 28672, 10000},
    {"llama3-8b", 32, 4096, 32, 8192, kLlama3Vocab, 8, 14336, 500000},
    {"llama3-70b", 80, 8192, 64, 8192, kLlama3Vocab, 8, 28672, 500000},
};

void ApplyLlama(const Preset& preset, Model* model) {
  if (!model->has_kv_heads()) model->set_kv_heads(preset.kv_heads);
  if (!model->has_ffn_size()) model->set_ffn_size(preset.ffn_size);
  if (!model->has_position()) model->set_position(Model::POSITION_ROPE);
  if (model->position() == Model::POSITION_ROPE && !model->rope().has_base())
    model->mutable_rope()->set_base(preset.rope_base);
  if (!model->has_norm()) model->set_norm(Model::NORM_RMSNORM);
  if (!model->has_activation()) model->set_activation(Model::ACTIVATION_SWIGLU);
  if (!model->has_bias()) model->set_bias(false);
  if (!model->has_tie_embeddings()) model->set_tie_embeddings(false);
}

}  // namespace

std::span<const Preset> Presets() { return kPresets; }

const Preset* FindPreset(std::string_view name) {
  for (const Preset& preset : kPresets) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

void ApplyPreset(const Preset& preset, bool with_vocab, Model* model) {
  if (!model->has_layers()) model->set_layers(preset.layers);
  if (!model->has_hidden_size()) model->set_hidden_size(preset.hidden_size);
  if (!model->has_heads()) model->set_heads(preset.heads);
  if (!model->has_seq_length()) model->set_seq_length(preset.seq_length);
  if (with_vocab && preset.vocab_size > 0 && !model->has_vocab_size()) {
    model->set_vocab_size(preset.vocab_size);
  }
  if (preset.kv_heads > 0) ApplyLlama(preset, model);
}

}  // namespace mt::spec
