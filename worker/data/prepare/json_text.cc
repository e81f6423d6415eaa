// A state per byte; strings, which are most of a line, are taken in runs.
#include "worker/data/prepare/json_text.h"

#include <algorithm>

namespace mt::data {
namespace {

constexpr size_t kMostDepth = 10000;

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// The type of the value that begins so, in words.
std::string_view TypeOf(char c) {
  switch (c) {
    case '{':
      return "object";
    case '[':
      return "array";
    case 't':
    case 'f':
      return "boolean";
    case 'n':
      return "null";
    default:
      return "number";
  }
}

int HexValue(char c) {
  if (IsDigit(c)) return c - '0';
  const int lower = c | 0x20;
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

}  // namespace

void JsonText::Begin() {
  next_ = Next::kStart;
  at_ = 0;
  open_.clear();
  wanted_ = found_ = is_text_ = false;
  utf8_left_ = 0;
  high_ = 0;
}

Status JsonText::Bad(std::string_view what) const {
  return base::InvalidArgument("invalid JSON: {} at byte {} of the line", what, at_ + 1);
}

Status JsonText::Feed(std::string_view part, std::string* text) {
  while (!part.empty()) {
    if (next_ == Next::kString && utf8_left_ == 0) {
      const size_t run = PlainRun(part, text);
      at_ += static_cast<int64_t>(run);
      part.remove_prefix(run);
      if (part.empty()) break;
    }
    RETURN_IF_ERROR(Step(part.front(), text));
    ++at_;
    part.remove_prefix(1);
  }
  return OkStatus();
}

Status JsonText::End() const {
  const bool whole = next_ == Next::kNothing && open_.empty();
  if (!whole) return Bad("the line ends too early");
  if (!found_) return base::InvalidArgument("no key '{}' in the JSON object", key_);
  return OkStatus();
}

size_t JsonText::PlainRun(std::string_view part, std::string* text) {
  size_t run = 0;
  while (run < part.size()) {
    const auto c = static_cast<unsigned char>(part[run]);
    if (c < 0x20 || c >= 0x80 || c == '"' || c == '\\') break;
    ++run;
  }
  if (run > 0) Emit(part.substr(0, run), text);
  return run;
}

void JsonText::Emit(std::string_view bytes, std::string* text) {
  if (is_text_) {
    text->append(bytes);
  } else if (is_key_ && name_.size() <= key_.size()) {
    name_.append(bytes.substr(0, key_.size() + 1));
  }
}

Status JsonText::Step(char c, std::string* text) {
  switch (next_) {
    case Next::kString: {
      if (utf8_left_ > 0 || static_cast<unsigned char>(c) >= 0x80) {
        RETURN_IF_ERROR(StepUtf8(static_cast<unsigned char>(c)));
        Emit(std::string_view(&c, 1), text);
        return OkStatus();
      }
      if (c == '"') return EndString();
      if (c != '\\') return Bad("a control character in a string");
      next_ = Next::kEscape;
      return OkStatus();
    }
    case Next::kEscape:
    case Next::kPair:
    case Next::kPairU:
      return StepEscape(c, text);
    case Next::kHex:
      return StepHex(c, text);
    case Next::kWord:
      return StepWord(c);
    case Next::kNumber:
      return StepNumber(c);
    case Next::kMark:
      if (c != "\xEF\xBB\xBF"[at_]) return Bad("not a JSON object");
      if (at_ == 2) next_ = Next::kStart;
      return OkStatus();
    default:
      break;
  }
  if (IsSpace(c)) return OkStatus();
  return StepStructure(c);
}

Status JsonText::StepStructure(char c) {
  switch (next_) {
    case Next::kStart:
      if (c == '\xEF' && at_ == 0) {
        next_ = Next::kMark;
        return OkStatus();
      }
      if (c != '{') return base::InvalidArgument("not a JSON object");
      return Open(c);
    case Next::kFirstItem:
      if (c == ']') return Close(c);
      return StepValue(c);
    case Next::kValue:
      return StepValue(c);
    case Next::kFirstKey:
      if (c == '}') return Close(c);
      [[fallthrough]];
    case Next::kKey:
      if (c != '"') return Bad("a key is expected");
      BeginString(true);
      return OkStatus();
    case Next::kColon:
      if (c != ':') return Bad("':' is expected");
      next_ = Next::kValue;
      return OkStatus();
    case Next::kComma:
      if (c != ',') return Close(c);
      next_ = open_.back() ? Next::kKey : Next::kValue;
      return OkStatus();
    default:
      return Bad("more follows the object");
  }
}

Status JsonText::StepValue(char c) {
  if (wanted_ && c != '"') {
    if (std::string_view("{[tfn-0123456789").find(c) == std::string_view::npos)
      return Bad("a value is expected");
    return base::InvalidArgument("'{}' is a {}, not a string", key_, TypeOf(c));
  }
  if (c == '"') {
    BeginString(false);
    return OkStatus();
  }
  if (c == '{' || c == '[') return Open(c);
  if (c == 't') word_ = "rue";
  if (c == 'f') word_ = "alse";
  if (c == 'n') word_ = "ull";
  if (c == 't' || c == 'f' || c == 'n') {
    next_ = Next::kWord;
    return OkStatus();
  }
  if (c != '-' && !IsDigit(c)) return Bad("a value is expected");
  digit_ = c == '-' ? Digit::kSign : c == '0' ? Digit::kZero : Digit::kInteger;
  next_ = Next::kNumber;
  return OkStatus();
}

Status JsonText::Open(char c) {
  if (open_.size() == kMostDepth) return Bad("too many levels");
  open_.push_back(c == '{');
  next_ = c == '{' ? Next::kFirstKey : Next::kFirstItem;
  return OkStatus();
}

Status JsonText::Close(char c) {
  if (c != (open_.back() ? '}' : ']')) return Bad("',' or the end is expected");
  open_.pop_back();
  EndValue();
  return OkStatus();
}

void JsonText::EndValue() { next_ = open_.empty() ? Next::kNothing : Next::kComma; }

void JsonText::BeginString(bool is_key) {
  next_ = Next::kString;
  names_ = is_key;
  is_key_ = is_key && open_.size() == 1;
  is_text_ = !is_key && wanted_;
  wanted_ = false;
  name_.clear();
}

Status JsonText::EndString() {
  is_text_ = false;
  if (!names_) {
    EndValue();
    return OkStatus();
  }
  next_ = Next::kColon;
  if (!is_key_ || name_ != key_) return OkStatus();
  is_key_ = false;
  if (found_) return base::InvalidArgument("the key '{}' stands twice in the JSON object", key_);
  wanted_ = found_ = true;
  return OkStatus();
}

Status JsonText::StepEscape(char c, std::string* text) {
  if (next_ == Next::kPair || next_ == Next::kPairU) {
    if (c != (next_ == Next::kPair ? '\\' : 'u')) return Bad("half of a surrogate pair");
    digits_ = 0;
    code_ = 0;
    next_ = next_ == Next::kPair ? Next::kPairU : Next::kHex;
    return OkStatus();
  }
  if (c == 'u') {
    digits_ = 0;
    code_ = 0;
    next_ = Next::kHex;
    return OkStatus();
  }
  constexpr std::string_view kNames = "\"\\/bfnrt";
  constexpr std::string_view kBytes = "\"\\/\b\f\n\r\t";
  const size_t found = kNames.find(c);
  if (found == std::string_view::npos) return Bad("an unknown escape");
  Emit(kBytes.substr(found, 1), text);
  next_ = Next::kString;
  return OkStatus();
}

Status JsonText::StepHex(char c, std::string* text) {
  const int value = HexValue(c);
  if (value < 0) return Bad("no hexadecimal digit");
  code_ = code_ * 16 + static_cast<uint32_t>(value);
  if (++digits_ < 4) return OkStatus();
  const bool is_high = code_ >= 0xD800 && code_ < 0xDC00;
  const bool is_low = code_ >= 0xDC00 && code_ < 0xE000;
  if (is_low != (high_ != 0)) return Bad("half of a surrogate pair");
  if (is_high) {
    high_ = code_;
    next_ = Next::kPair;
    return OkStatus();
  }
  EmitCode(is_low ? 0x10000 + ((high_ - 0xD800) << 10) + (code_ - 0xDC00) : code_, text);
  high_ = 0;
  next_ = Next::kString;
  return OkStatus();
}

void JsonText::EmitCode(uint32_t code, std::string* text) {
  std::string utf8;
  const auto put = [&](uint32_t byte) { utf8.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
  Emit(utf8, text);
}

// The well-formed sequences of Unicode's table 3-7: the first byte bounds the second.
Status JsonText::StepUtf8(unsigned char c) {
  if (utf8_left_ > 0) {
    if (c < utf8_low_ || c > utf8_high_) return Bad("no UTF-8");
    --utf8_left_;
    utf8_low_ = 0x80;
    utf8_high_ = 0xBF;
    return OkStatus();
  }
  if (c < 0xC2 || c > 0xF4) return Bad("no UTF-8");
  utf8_left_ = c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3;
  utf8_low_ = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
  utf8_high_ = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
  return OkStatus();
}

Status JsonText::StepWord(char c) {
  if (c != word_.front()) return Bad("an unknown word");
  word_.remove_prefix(1);
  if (word_.empty()) EndValue();
  return OkStatus();
}

Status JsonText::StepNumber(char c) {
  const bool ends = digit_ == Digit::kZero || digit_ == Digit::kInteger ||
                    digit_ == Digit::kFraction || digit_ == Digit::kExponent;
  const bool whole = digit_ == Digit::kZero || digit_ == Digit::kInteger;
  if (IsDigit(c) && digit_ != Digit::kZero) {
    if (digit_ == Digit::kSign) digit_ = c == '0' ? Digit::kZero : Digit::kInteger;
    if (digit_ == Digit::kPoint) digit_ = Digit::kFraction;
    if (digit_ == Digit::kE || digit_ == Digit::kESign) digit_ = Digit::kExponent;
    return OkStatus();
  }
  if (c == '.' && whole) {
    digit_ = Digit::kPoint;
    return OkStatus();
  }
  if ((c == 'e' || c == 'E') && (whole || digit_ == Digit::kFraction)) {
    digit_ = Digit::kE;
    return OkStatus();
  }
  if ((c == '+' || c == '-') && digit_ == Digit::kE) {
    digit_ = Digit::kESign;
    return OkStatus();
  }
  if (!ends) return Bad("a damaged number");
  EndValue();
  return IsSpace(c) ? OkStatus() : StepStructure(c);
}

}  // namespace mt::data
