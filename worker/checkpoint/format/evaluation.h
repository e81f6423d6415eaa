// The file EVAL.json in a checkpoint's folder: the validation loss of the state that the checkpoint
// holds. It is written after the checkpoint, by an evaluation of the same step, and is no part of
// what makes a checkpoint complete. Functions block; thread-safe.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace mt::checkpoint {

// What a loss was measured on. Losses of different measures are not compared.
struct Measure {
  std::string kind;     // kRolling, kFixed, kSplit; empty: not known (earlier versions)
  int64_t samples = 0;  // of one evaluation; 0: the whole split
  std::string data;     // digest of the split, and of which samples kFixed reads: "xxh3:..."
  friend auto operator<=>(const Measure&, const Measure&) = default;
};
inline constexpr std::string_view kRolling = "rolling";  // each evaluation reads other samples
inline constexpr std::string_view kFixed = "fixed";      // each reads the same ones
inline constexpr std::string_view kSplit = "split";      // each reads every token once

struct Evaluation {
  std::string split;  // "valid"
  int64_t step = 0;
  double loss = 0;  // mean over the tokens
  int64_t tokens = 0;
  Measure measure{};
  std::optional<double> bits_per_byte{};  // nullopt: not known
};

inline constexpr std::string_view kEvaluationName = "EVAL.json";
inline constexpr int kEvaluationVersion = 1;

// The evaluation as JSON text (FORMAT.md).
std::string ToJson(const Evaluation& evaluation);
// Parses an evaluation from arbitrary bytes. kDataLoss: damaged; kFailedPrecondition: newer.
StatusOr<Evaluation> ParseEvaluation(std::string_view json);

// Of the checkpoint in `folder`; written atomically. nullopt: it has none.
Status WriteEvaluation(const std::string& folder, const Evaluation& evaluation);
StatusOr<std::optional<Evaluation>> ReadEvaluation(const std::string& folder);

}  // namespace mt::checkpoint
