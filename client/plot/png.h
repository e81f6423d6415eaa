// Pictures with a palette as PNG files (ISO/IEC 15948:2004): eight bits a pixel, not interlaced.
// Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace mt::client {

struct Rgb {
  uint8_t red, green, blue;
};

// The bytes of the file. `pixels` are width x height indices into the palette, row by row from the
// top; CHECKs that there are as many.
std::string EncodePng(int width, int height, std::span<const Rgb> palette,
                      const std::vector<uint8_t>& pixels);

}  // namespace mt::client
