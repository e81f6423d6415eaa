// JSON of a file that may be damaged, or written to do harm. The library copies and prints a value
// by calling itself for each level, so a text of brackets alone would overflow the stack: what is
// nested deeper than any file of ours is no JSON.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

namespace mt::checkpoint {

constexpr int kDeepestJson = 64;

// A discarded value where the text is no JSON.
inline nlohmann::json ParseJson(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') in_string = !in_string;
    if (in_string) {
      if (c == '\\') ++i;
      continue;
    }
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kDeepestJson) return nlohmann::json(nlohmann::json::value_t::discarded);
  }
  return nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace mt::checkpoint
