// The fixed column of keys, and indentation.
#include "client/output/description.h"

#include <fmt/format.h>

namespace mt::client {
namespace {

constexpr size_t kKeyWidth = 18;

}  // namespace

void Description::Add(const std::string& key, const std::string& value) {
  std::string shown = value;  // what follows a line feed must not look like another key
  for (size_t at = 0; (at = shown.find('\n', at)) != std::string::npos; at += 1 + kKeyWidth) {
    shown.insert(at + 1, kKeyWidth, ' ');
  }
  text_ += fmt::format("{:<{}}{}\n", key + ":", kKeyWidth, shown);
}

std::string Indent(const std::string& text) {
  std::string out;
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    out += "  " + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return out;
}

}  // namespace mt::client
