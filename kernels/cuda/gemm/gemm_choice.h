// The tuning table's choice for one GEMM, and its text form: cuBLASLt's algorithm in hex, or that
// there is none. The text is persistent in checkpoints and tuning files.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kernels/cuda/gemm/cublas_gemm.h"

namespace mt::kernels::cuda {

// `possible` is false if cuBLASLt has no algorithm for the GEMM.
struct GemmChoice {
  bool possible = false;
  GemmAlgorithm algorithm;
};

// "algorithm " and the algorithm's 64-bit words in hex, or "none".
std::string ToText(const GemmChoice& choice);
// Returns nullopt for any text that ToText does not produce.
std::optional<GemmChoice> ParseChoice(std::string_view text);

}  // namespace mt::kernels::cuda
