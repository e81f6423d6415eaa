// Recursive-descent parser of Megatron-LM's pipeline layout string: the text is expanded to plain
// letters, from which the counts are read.
#include "common/layout/layout_string.h"

#include <charconv>
#include <string>

namespace mt::layout {
namespace {

constexpr size_t kMaxExpanded = size_t{1} << 20;

// Grammar: items := (atom ["*" number])*, atom := "(" items ")" | one of "Etm|L".
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  // The layout without repetitions, commas and blanks; InvalidArgument where it is malformed or
  // expands beyond a bound.
  StatusOr<std::string> Expand() {
    ASSIGN_OR_RETURN(std::string all, Items(0));
    if (at_ < text_.size()) return Error("a ')' without '('");
    return all;
  }

 private:
  static constexpr int kMaxDepth = 16;

  Status Error(std::string_view what) const {
    return base::InvalidArgument("layout '{}': {} at character {}", text_, what, at_ + 1);
  }

  StatusOr<std::string> Items(int depth) {
    std::string all;
    while (at_ < text_.size() && text_[at_] != ')') {
      if (text_[at_] == ',' || text_[at_] == ' ') {
        ++at_;
        continue;
      }
      ASSIGN_OR_RETURN(const std::string atom, Atom(depth));
      ASSIGN_OR_RETURN(const size_t times, Repetition());
      if (all.size() + atom.size() * times > kMaxExpanded) return Error("too many positions");
      for (size_t i = 0; i < times; ++i) all += atom;
    }
    return all;
  }

  StatusOr<std::string> Atom(int depth) {
    const char c = text_[at_];
    if (c == '(') {
      if (depth >= kMaxDepth) return Error("parentheses too deep");
      ++at_;
      ASSIGN_OR_RETURN(std::string inner, Items(depth + 1));
      if (at_ >= text_.size()) return Error("a '(' is not closed");
      ++at_;
      return inner;
    }
    if (std::string_view("Etm|L").find(c) == std::string_view::npos) {
      return Error("expected E, t, L, |, ( or a comma");
    }
    ++at_;
    return std::string(1, c);
  }

  StatusOr<size_t> Repetition() {
    if (at_ >= text_.size() || text_[at_] != '*') return size_t{1};
    ++at_;
    size_t times = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), times);
    if (error != std::errc() || times == 0 || times > kMaxExpanded) {
      return Error("expected a number above 0 after '*'");
    }
    at_ = static_cast<size_t>(end - text_.data());
    return times;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

StatusOr<std::vector<int64_t>> CountsOfLayoutString(std::string_view text) {
  ASSIGN_OR_RETURN(const std::string flat, Parser(text).Expand());
  std::vector<int64_t> counts = {0};
  for (size_t i = 0; i < flat.size(); ++i) {
    switch (flat[i]) {
      case '|':
        counts.push_back(0);
        break;
      case 't':
        ++counts.back();
        break;
      case 'E':
        if (i != 0) return base::InvalidArgument("layout '{}': E stands first, and once", text);
        break;
      case 'L':
        if (i + 1 != flat.size()) {
          return base::InvalidArgument("layout '{}': L stands last, and once", text);
        }
        break;
      default:
        return base::InvalidArgument("layout '{}': m (multi-token prediction) is not supported yet",
                                     text);
    }
  }
  if (flat.empty() || flat.front() != 'E' || flat.back() != 'L') {
    return base::InvalidArgument("layout '{}': begins with E (embedding) and ends with L (loss)",
                                 text);
  }
  return counts;
}

}  // namespace mt::layout
