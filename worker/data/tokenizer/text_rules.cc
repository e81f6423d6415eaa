// Steps are applied one after the other, as written: files combine them in more ways than one.
#include "worker/data/tokenizer/text_rules.h"

#include <charconv>
#include <numeric>

#include "worker/data/tokenizer/unicode.h"

namespace mt::data {
namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

std::string Replaced(std::string_view text, std::string_view pattern, std::string_view content) {
  std::string result;
  result.reserve(text.size());
  for (;;) {
    const size_t found = text.find(pattern);
    result.append(text.substr(0, found));
    if (found == std::string_view::npos) return result;
    result.append(content);
    text.remove_prefix(found + pattern.size());
  }
}

std::vector<std::string> JoinBytes(std::vector<std::string> tokens) {
  std::vector<std::string> joined;
  std::string run;
  const auto flush = [&] {
    if (run.empty()) return;
    if (ValidUtf8Prefix(run) == run.size()) {
      joined.push_back(run);
    } else {
      joined.insert(joined.end(), run.size(), std::string(kReplacementCharacter));
    }
    run.clear();
  };
  for (std::string& token : tokens) {
    if (const std::optional<char> byte = ByteOfToken(token)) {
      run.push_back(*byte);
      continue;
    }
    flush();
    joined.push_back(std::move(token));
  }
  flush();
  return joined;
}

std::string Stripped(std::string_view token, const DecoderStep& step) {
  for (size_t i = 0; i < step.start && token.starts_with(step.pattern); ++i)
    token.remove_prefix(step.pattern.size());
  for (size_t i = 0; i < step.stop && token.ends_with(step.pattern); ++i)
    token.remove_suffix(step.pattern.size());
  return std::string(token);
}

void Apply(const DecoderStep& step, std::vector<std::string>* tokens) {
  switch (step.kind) {
    case DecoderStep::Kind::kReplace:
      for (std::string& token : *tokens) token = Replaced(token, step.pattern, step.content);
      return;
    case DecoderStep::Kind::kByteFallback:
      *tokens = JoinBytes(std::move(*tokens));
      return;
    case DecoderStep::Kind::kFuse:
      *tokens = {std::accumulate(tokens->begin(), tokens->end(), std::string())};
      return;
    case DecoderStep::Kind::kStrip:
      for (std::string& token : *tokens) token = Stripped(token, step);
      return;
    case DecoderStep::Kind::kMetaspace:
      for (size_t i = 0; i < tokens->size(); ++i)
        (*tokens)[i] = Replaced((*tokens)[i], step.pattern, i == 0 && step.drop ? "" : " ");
      return;
  }
}

}  // namespace

// The library reads a sign before one digit, too.
std::optional<char> ByteOfToken(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  std::string_view digits = token.substr(3, 2);
  if (digits.front() == '+') digits.remove_prefix(1);
  unsigned value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, /*base=*/16);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return static_cast<char>(value);
}

std::string Normalized(const std::vector<NormalizerStep>& steps, std::string_view text) {
  std::string result(text);
  for (const NormalizerStep& step : steps) {
    if (result.empty()) break;
    if (step.pattern.empty()) {
      result.insert(0, step.content);
    } else {
      result = Replaced(result, step.pattern, step.content);
    }
  }
  return result;
}

std::string WithMarks(const Metaspace& rule, std::string_view text, bool first) {
  std::string result = Replaced(text, " ", rule.mark);
  const bool prepend = rule.prepend == Metaspace::Prepend::kAlways ||
                       (rule.prepend == Metaspace::Prepend::kFirst && first);
  if (prepend && !result.starts_with(rule.mark)) result.insert(0, rule.mark);
  return result;
}

std::string Decoded(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens) {
  for (const DecoderStep& step : steps) Apply(step, &tokens);
  return std::accumulate(tokens.begin(), tokens.end(), std::string());
}

}  // namespace mt::data
