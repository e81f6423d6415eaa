// Which of Hugging Face's model classes computes what a model of a job computes. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "common/base/status.h"

namespace megatrain::v1 {
class Model;
}

namespace mt::hf {

enum class Family : uint8_t { kGpt2, kLlama, kMistral, kQwen2, kQwen3, kGptNeox };
inline constexpr std::array kFamilies = {Family::kGpt2,  Family::kLlama, Family::kMistral,
                                         Family::kQwen2, Family::kQwen3, Family::kGptNeox};

// config.json's model_type ("gpt2", "gpt_neox") and its one architecture ("GPT2LMHeadModel").
std::string_view ModelType(Family family);
std::string_view Architecture(Family family);
// The family of a model_type; nullopt: none of these.
std::optional<Family> FamilyOfType(std::string_view model_type);

// The family in which a completed model is written. kFailedPrecondition, naming every field that
// Hugging Face has no name for beside the others: "model.activation: relu2 ...".
StatusOr<Family> FamilyOf(const megatrain::v1::Model& model);

}  // namespace mt::hf
