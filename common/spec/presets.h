// Known model shapes by name ("gpt2-124m"). One table; `model.preset` applies an entry, a test
// compares each parameter count with its name.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace megatrain::v1 {
class Model;
}

namespace mt::spec {

struct Preset {
  std::string_view name;
  int64_t layers;
  int64_t hidden_size;
  int64_t heads;
  int64_t seq_length;
  int64_t vocab_size;  // used where the tokenizer has no vocabulary of its own
  // Of Llama's family (RMSNorm, rotary positions, SwiGLU, no biases, an output matrix of its own);
  // else 0, and the model section's defaults hold.
  int64_t kv_heads = 0;
  int64_t ffn_size = 0;
  double rope_base = 0;
};

std::span<const Preset> Presets();
// nullptr: no such preset.
const Preset* FindPreset(std::string_view name);
// Fills what *model leaves unset, so it comes before the defaults; vocab_size only if asked. The
// rotary base is left out where *model asks for other positions.
void ApplyPreset(const Preset& preset, bool with_vocab, megatrain::v1::Model* model);

}  // namespace mt::spec
