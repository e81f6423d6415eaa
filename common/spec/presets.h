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
};

std::span<const Preset> Presets();
// nullptr: no such preset.
const Preset* FindPreset(std::string_view name);
// Fills what *model leaves unset; vocab_size only if asked.
void ApplyPreset(const Preset& preset, bool with_vocab, megatrain::v1::Model* model);

}  // namespace mt::spec
