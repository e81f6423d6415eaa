// Text of `mtctl describe`: a line per fact, and indented blocks. Pure.
#pragma once

#include <string>

namespace mt::client {

class Description {
 public:
  // "Key:              value".
  void Add(const std::string& key, const std::string& value);
  void Raw(const std::string& text) { text_ += text; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Two blanks before every line.
std::string Indent(const std::string& text);

}  // namespace mt::client
