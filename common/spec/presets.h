// Published model shapes by name ("gpt2-124m") in one table. `model.preset` applies an entry; a
// test compares each entry's parameter count with its name. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace megatrain::v1 {
class Model;
}

namespace mt::spec {

// One model shape, in the units of the model section.
struct Preset {
  std::string_view name;
  int64_t layers;
  int64_t hidden_size;
  int64_t heads;
  int64_t seq_length;
  int64_t vocab_size;  // used where the tokenizer does not define one
  // For the Llama family (RMSNorm, rotary positions, SwiGLU, no biases, untied embeddings); 0 for
  // others, which take the defaults of the model section.
  int64_t kv_heads = 0;
  int64_t ffn_size = 0;
  double rope_base = 0;
};

std::span<const Preset> Presets();
// The preset of this name, or nullptr; it lives for ever.
const Preset* FindPreset(std::string_view name);
// Sets the fields that *model leaves unset, so it has to run before the defaults; vocab_size only
// where `with_vocab`. The rotary base is skipped where *model asks for other positions.
void ApplyPreset(const Preset& preset, bool with_vocab, megatrain::v1::Model* model);

}  // namespace mt::spec
