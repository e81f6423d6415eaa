// Takes the string under one key out of a line of JSON, as the line arrives: a line of any length
// needs a few bytes of memory beyond its text. The grammar is RFC 8259's, whole: what a JSON parser
// refuses is refused. One key counts, at the top level; it may stand there once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace mt::data {

class JsonText {
 public:
  explicit JsonText(std::string key) : key_(std::move(key)) {}

  // Forgets the line before; call it at the start of each.
  void Begin();
  // The next part of the line; what of it belongs to the text is appended to `text`, decoded.
  // kInvalidArgument for what is no JSON object or has another type under the key; nothing but
  // Begin may follow.
  Status Feed(std::string_view part, std::string* text);
  // The end of the line. kInvalidArgument if it is too early, or the key was missing.
  Status End() const;
  // Nothing but white space has come.
  bool blank() const { return next_ == Next::kStart; }

 private:
  // What may come next.
  enum class Next : uint8_t {
    kStart,      // the line's first value
    kValue,      // any value
    kFirstItem,  // any value, or the end of the array
    kFirstKey,   // a key, or the end of the object
    kKey,
    kColon,
    kComma,  // or the end of what is open
    kNothing,
    kString,  // within one
    kEscape,  // behind its backslash
    kHex,     // within the four digits of \u
    kPair,    // the backslash of a second half
    kPairU,   // its u
    kWord,    // true, false, null
    kNumber,  // within one
    kMark,    // of the byte order, which may precede the line
  };
  // Where a number stands.
  enum class Digit : uint8_t { kSign, kZero, kInteger, kPoint, kFraction, kE, kESign, kExponent };

  Status Step(char c, std::string* text);
  Status StepValue(char c);
  Status StepStructure(char c);
  Status StepEscape(char c, std::string* text);
  Status StepHex(char c, std::string* text);
  Status StepWord(char c);
  Status StepNumber(char c);
  Status StepUtf8(unsigned char c);
  // Consumes bytes of a string that are themselves; returns how many.
  size_t PlainRun(std::string_view part, std::string* text);
  void BeginString(bool is_key);
  Status EndString();
  // The value that was open has ended.
  void EndValue();
  Status Open(char c);
  Status Close(char c);
  void Emit(std::string_view bytes, std::string* text);
  void EmitCode(uint32_t code, std::string* text);
  Status Bad(std::string_view what) const;

  const std::string key_;
  Next next_ = Next::kStart;
  int64_t at_ = 0;          // bytes of the line before this one
  std::vector<bool> open_;  // true: an object, false: an array; the innermost last
  bool names_ = false;      // the string that is read is a key
  bool is_key_ = false;     // and one at the top level
  bool is_text_ = false;    // it is the one that is wanted
  bool wanted_ = false;     // the next value is
  bool found_ = false;
  std::string name_;   // of a key at the top level, as long as it can be the one
  uint32_t code_ = 0;  // of \u, and the first half of a pair before it
  uint32_t high_ = 0;
  int digits_ = 0;
  int utf8_left_ = 0;  // bytes that continue the character
  unsigned char utf8_low_ = 0x80, utf8_high_ = 0xBF;
  std::string_view word_;  // what is left of it
  Digit digit_ = Digit::kSign;
};

}  // namespace mt::data
