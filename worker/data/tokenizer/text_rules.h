// What a tokenizer.json of BPE over characters does to text before the model sees it and after it
// has given tokens: normalizer, pre_tokenizer Metaspace and decoder, each as the tokenizers library
// has it. Pure; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mt::data {

// Prepend where `pattern` is empty, else Replace of each occurrence of that text.
struct NormalizerStep {
  std::string pattern{};
  std::string content{};
};

// The text after all steps; an empty text stays empty.
std::string Normalized(const std::vector<NormalizerStep>& steps, std::string_view text);

// The character that stands for a space, before each word.
struct Metaspace {
  enum class Prepend { kNever, kFirst, kAlways };
  std::string mark = "\xE2\x96\x81";
  Prepend prepend = Prepend::kAlways;  // before a text that does not begin with it
  bool split = true;                   // a piece begins at each mark
};

// A text between added tokens as the model takes it; `first` where it is the begin of the text.
std::string WithMarks(const Metaspace& rule, std::string_view text, bool first);

struct DecoderStep {
  enum class Kind {
    kReplace,       // each occurrence of `pattern` by `content`
    kByteFallback,  // tokens <0xNN> are bytes; a run of them that is no UTF-8 is U+FFFD each
    kFuse,          // one token of all
    kStrip,         // up to `start` and `stop` of `pattern`, a character, at both ends of a token
    kMetaspace      // `pattern`, a character, is a space; in the first token nothing, if `drop`
  };
  Kind kind{};
  std::string pattern{};
  std::string content{};
  size_t start = 0, stop = 0;
  bool drop = false;
};

// The byte of a token <0xNN>; nullopt for others.
std::optional<char> ByteOfToken(std::string_view token);

std::string Decoded(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens);

}  // namespace mt::data
