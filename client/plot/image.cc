// Everything is made of single dots and rectangles.
#include "client/plot/image.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "client/plot/font.h"

namespace mt::client {
namespace {

constexpr int kScale = 2;
static_assert(kLetterWidth == kScale * (kGlyphWidth + 1));
static_assert(kLetterHeight == kScale * kGlyphAscent);

}  // namespace

Image::Image(int width, int height)
    : width_(width),
      height_(height),
      pixels_(static_cast<size_t>(width) * static_cast<size_t>(height)) {}

void Image::Dot(int x, int y, uint8_t color) {
  if (x < 0 || y < 0 || x >= width_ || y >= height_) return;
  pixels_[static_cast<size_t>(y) * static_cast<size_t>(width_) + static_cast<size_t>(x)] = color;
}

void Image::Fill(int x0, int y0, int x1, int y1, uint8_t color) {
  for (int y = y0; y <= y1; ++y) {
    for (int x = x0; x <= x1; ++x) Dot(x, y, color);
  }
}

void Image::Line(int x0, int y0, int x1, int y1, uint8_t color, int dashes) {
  const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
  for (int i = 0; i <= steps; ++i) {
    const double t = static_cast<double>(i) / steps;
    const int x = static_cast<int>(std::lround(x0 + t * (x1 - x0)));
    const int y = static_cast<int>(std::lround(y0 + t * (y1 - y0)));
    if (dashes > 0 && x / dashes % 2 != 0) continue;
    Fill(x, y, x + 1, y + 1, color);
  }
}

void Image::Circle(int x, int y, int radius, uint8_t color) {
  for (int dy = -radius; dy <= radius; ++dy) {
    for (int dx = -radius; dx <= radius; ++dx) {
      const double far = std::hypot(dx, dy);
      if (far <= radius + 0.3 && far > radius - 1.7) Dot(x + dx, y + dy, color);
    }
  }
}

void Image::Cross(int x, int y, int radius, uint8_t color) {
  for (int d = -radius; d <= radius; ++d) {
    Fill(x + d, y + d, x + d + 1, y + d, color);
    Fill(x + d, y - d, x + d + 1, y - d, color);
  }
}

void Image::Text(int x, int y, std::string_view text, uint8_t color) {
  for (const char letter : text) {
    const Glyph& glyph = GlyphOf(letter);
    for (int row = 0; row < kGlyphHeight; ++row) {
      for (int column = 0; column < kGlyphWidth; ++column) {
        const unsigned bit = 1U << static_cast<unsigned>(kGlyphWidth - 1 - column);
        if ((glyph[static_cast<size_t>(row)] & bit) == 0) continue;
        const int left = x + kScale * column;
        const int top = y + kScale * row;
        Fill(left, top, left + kScale - 1, top + kScale - 1, color);
      }
    }
    x += kLetterWidth;
  }
}

int TextWidth(std::string_view text) { return kLetterWidth * static_cast<int>(text.size()); }

}  // namespace mt::client
