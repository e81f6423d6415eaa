// Texts that splitters find hard, by a seed: letters, digits, marks and white space of many
// scripts, contractions, line ends; and, where asked, bytes that are no UTF-8.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>

#include "worker/data/tokenizer/unicode.h"

namespace mt::data {

class RandomText {
 public:
  explicit RandomText(uint64_t seed) : random_(seed) {}

  std::string Make(size_t pieces, bool invalid) {
    static constexpr std::array<std::string_view, 36> kPieces = {" ",
                                                                 "  ",
                                                                 "\n",
                                                                 "\r\n",
                                                                 "\t",
                                                                 "a",
                                                                 "B",
                                                                 "word",
                                                                 "don't",
                                                                 "'S",
                                                                 "'\xC5\xBF",
                                                                 "'ll",
                                                                 "'",
                                                                 "12",
                                                                 "345",
                                                                 "6789",
                                                                 "\xC2\xA0",
                                                                 "\xE3\x80\x80",
                                                                 "\xC2\x85",
                                                                 "\xE2\x80\xA8",
                                                                 "\xC3\xA9",
                                                                 "e\xCC\x81",
                                                                 "\xE4\xB8\xAD\xE6\x96\x87",
                                                                 "\xF0\x9F\x98\x80",
                                                                 "\xD9\xA3",
                                                                 "\xC2\xBD",
                                                                 "(",
                                                                 "...",
                                                                 "<|",
                                                                 "'re",
                                                                 "\xCE\xA9",
                                                                 "\xE0\xB8\x97",
                                                                 "\x01",
                                                                 "\x7F",
                                                                 "'VE",
                                                                 "_"};
    std::string text;
    for (size_t i = 0; i < pieces; ++i) {
      const uint64_t kind = random_() % 12;
      if (kind == 0 && invalid) {
        text.push_back(static_cast<char>(random_() % 256));
      } else if (kind < 3) {
        AppendUtf8(AnyCode(), &text);
      } else {
        text += kPieces[random_() % kPieces.size()];
      }
    }
    return text;
  }

  std::string Bytes(size_t size) {
    std::string text(size, '\0');
    for (char& byte : text) byte = static_cast<char>(random_() % 256);
    return text;
  }

 private:
  uint32_t AnyCode() {
    const uint32_t code =
        static_cast<uint32_t>(random_() % (random_() % 2 == 0 ? 0x3000 : kCodePoints));
    return code >= 0xD800 && code < 0xE000 ? 'x' : code;
  }
  std::mt19937_64 random_;
};

}  // namespace mt::data
