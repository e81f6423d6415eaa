// A loss in other units than nats per token. Perplexity reads as a number of equally likely tokens;
// bits per byte compares models whose tokenizers differ. Header only; pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

namespace mt::report {

// Of a mean loss in nats: e to the power of it, of a loss above 20 that of 20, as Megatron-LM
// prints it. nullopt: the loss is no number.
inline std::optional<double> Perplexity(double loss) {
  constexpr double kMostNats = 20;
  if (!std::isfinite(loss)) return std::nullopt;
  return std::exp(std::min(kMostNats, loss));
}

// Of the summed loss of tokens, in nats, that stand for so many bytes of text. nullopt: one of them
// is no number, as bytes are that nobody knows, or there are no bytes.
inline std::optional<double> BitsPerByte(double loss_sum, double bytes) {
  if (!std::isfinite(loss_sum) || !std::isfinite(bytes) || bytes <= 0) return std::nullopt;
  return loss_sum / (std::numbers::ln2 * bytes);
}

}  // namespace mt::report
