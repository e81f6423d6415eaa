// config.json and generation_config.json of an exported model. Every field is written, since
// defaults differ by family; RoPE as the one dict rope_parameters, which transformers 5 reads.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "worker/hf/family.h"

namespace mt::hf {

struct ConfigArgs {
  const megatrain::v1::Model* model = nullptr;  // completed, with a vocabulary
  Family family = Family::kGpt2;
  std::string dtype;           // of the files: "float32", "bfloat16", "float16", "float64"
  std::optional<int64_t> eos;  // the end-of-document token, which begins a text, too
};

// The text of config.json. kFailedPrecondition: a share of rotated channels that GPT-NeoX does not
// have (an odd number of channels).
StatusOr<std::string> ConfigText(const ConfigArgs& args);
// The text of generation_config.json: without eos_token_id there, decoding never stops.
std::string GenerationConfigText(std::optional<int64_t> eos);

}  // namespace mt::hf
