// Block style with two blanks per level; text is left unquoted only where no YAML version could
// read it otherwise.
#include "client/output/yaml.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include <nlohmann/json.hpp>

#include "client/output/json.h"

namespace mt::client {
namespace {

using nlohmann::ordered_json;

bool IsReserved(const std::string& text) {
  static constexpr std::array<std::string_view, 9> kWords = {"true", "false", "null", "yes", "no",
                                                             "on",   "off",   "y",    "n"};
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::find(kWords.begin(), kWords.end(), lower) != kWords.end();
}

// True for text that starts with a letter or '/' and contains nothing that YAML interprets:
// numbers, dates, comments, mappings and flow syntax all get quotes.
bool IsPlain(const std::string& text) {
  if (text.empty() || IsReserved(text)) return false;
  const auto first = static_cast<unsigned char>(text.front());
  if (std::isalpha(first) == 0 && first != '/') return false;
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == '/' || c == '@';
  });
}

// YAML's double-quoted scalars accept JSON's escapes.
std::string Scalar(const ordered_json& value) {
  if (value.is_string() && IsPlain(value.get_ref<const std::string&>()))
    return value.get<std::string>();
  return JsonText(value, -1);
}

void Write(const ordered_json& value, size_t indent, std::string* out) {
  const std::string pad(indent, ' ');
  bool first = true;
  // The first line of a list's item follows its dash.
  const auto lead = [&] {
    if (!first || out->empty() || out->back() == '\n') *out += pad;
    first = false;
  };
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) {
      lead();
      *out += Scalar(key) + ":";
      if (member.is_structured() && !member.empty()) {
        *out += "\n";
        Write(member, indent + 2, out);
      } else {
        *out += " " + Scalar(member) + "\n";
      }
    }
    return;
  }
  for (const ordered_json& member : value) {
    lead();
    *out += "- ";
    if (member.is_structured() && !member.empty()) {
      Write(member, indent + 2, out);
    } else {
      *out += Scalar(member) + "\n";
    }
  }
}

}  // namespace

std::string YamlText(const ordered_json& tree) {
  std::string out;
  if (!tree.is_structured() || tree.empty()) return Scalar(tree) + "\n";
  Write(tree, 0, &out);
  return out;
}

}  // namespace mt::client
