// bytes_to_unicode of GPT-2's encoder.py.
#include "worker/data/tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "worker/data/tokenizer/unicode.h"

namespace mt::data {
namespace {

constexpr uint32_t kFirstSpare = 0x100;
constexpr size_t kCharacters = kFirstSpare + 68;  // 68 bytes are not printable

struct Alphabet {
  std::array<uint32_t, 256> of_byte{};
  std::array<int, kCharacters> byte_of{};
};

constexpr bool Printable(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr Alphabet MakeAlphabet() {
  Alphabet made;
  made.byte_of.fill(-1);
  uint32_t spare = kFirstSpare;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    made.of_byte[byte] = Printable(byte) ? byte : spare++;
    made.byte_of[made.of_byte[byte]] = static_cast<int>(byte);
  }
  return made;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

std::optional<std::string> BytesOfAlphabet(std::string_view text) {
  if (ValidUtf8Prefix(text) != text.size()) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = DecodeUtf8(text.data());
    text.remove_prefix(point.bytes);
    if (point.code >= kCharacters || kAlphabet.byte_of[point.code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte_of[point.code]));
  }
  return bytes;
}

std::string AlphabetOfBytes(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes)
    AppendUtf8(kAlphabet.of_byte[static_cast<unsigned char>(byte)], &text);
  return text;
}

}  // namespace mt::data
