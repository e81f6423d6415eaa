// The fixed column of keys, and indentation.
#include "client/output/description.h"

#include <fmt/format.h>

namespace mt::client {

void Description::Add(const std::string& key, const std::string& value) {
  text_ += fmt::format("{:<18}{}\n", key + ":", value);
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
