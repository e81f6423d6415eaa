// Builder for the text of `mtctl describe`: one line per fact, and indented blocks. Pure.
#pragma once

#include <string>

namespace mt::client {

class Description {
 public:
  // Appends "Key:              value".
  void Add(const std::string& key, const std::string& value);
  // Appends a block as it is.
  void Raw(const std::string& text) { text_ += text; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Prefixes every line with two blanks.
std::string Indent(const std::string& text);

}  // namespace mt::client
