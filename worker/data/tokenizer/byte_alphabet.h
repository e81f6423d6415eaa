// GPT-2's way to write bytes as printable characters, in which files of byte-level tokenizers spell
// their tokens: printable bytes of Latin-1 are themselves, the others are U+0100 and up. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mt::data {

// The bytes that `text` spells; nullopt where a character is none of the 256.
std::optional<std::string> BytesOfAlphabet(std::string_view text);
// `bytes` as the alphabet spells them.
std::string AlphabetOfBytes(std::string_view bytes);

}  // namespace mt::data
