// The text form of a choice. The parser accepts exactly what the formatter writes, so that a
// damaged entry is timed again instead of run.
#include "kernels/cuda/gemm/gemm_choice.h"

#include <charconv>
#include <iterator>

#include <fmt/format.h>

namespace mt::kernels::cuda {
namespace {

constexpr char kAlgorithm[] = "algorithm ", kImpossible[] = "none";

}  // namespace

std::string ToText(const GemmChoice& choice) {
  if (!choice.possible) return kImpossible;
  std::string text = kAlgorithm;
  for (const uint64_t word : choice.algorithm.raw.data) text += fmt::format("{:016x}", word);
  return text;
}

std::optional<GemmChoice> ParseChoice(std::string_view text) {
  if (text == kImpossible) return GemmChoice{};
  GemmChoice choice{.possible = true, .algorithm = {}};
  constexpr size_t kDigits = 16;
  auto& words = choice.algorithm.raw.data;
  const std::string_view prefix = kAlgorithm;
  if (!text.starts_with(prefix)) return std::nullopt;
  text.remove_prefix(prefix.size());
  if (text.size() != kDigits * std::size(words)) return std::nullopt;
  for (uint64_t& word : words) {
    const auto read = std::from_chars(text.data(), text.data() + kDigits, word, 16);
    if (read.ec != std::errc() || read.ptr != text.data() + kDigits) return std::nullopt;
    text.remove_prefix(kDigits);
  }
  return choice;
}

}  // namespace mt::kernels::cuda
