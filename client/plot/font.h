// Letters of five by nine dots for pictures: the characters of names, numbers and legends. Pure.
#pragma once

#include <array>
#include <cstdint>

namespace mt::client {

inline constexpr int kGlyphWidth = 5;
inline constexpr int kGlyphHeight = 9;  // seven rows above the base line, two below
inline constexpr int kGlyphAscent = 7;

// Rows from the top; bit 4 is the dot on the left.
using Glyph = std::array<uint8_t, kGlyphHeight>;

// The glyph of an ASCII character; of one that the font has not, a box.
const Glyph& GlyphOf(char letter);

}  // namespace mt::client
