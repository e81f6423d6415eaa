// A picture of pixels from a small palette, with the few shapes that a plot needs. Coordinates
// count from the upper left corner; what lies outside is left out. Not thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace mt::client {

class Image {
 public:
  // All pixels have colour 0.
  Image(int width, int height);

  int width() const { return width_; }
  int height() const { return height_; }
  const std::vector<uint8_t>& pixels() const { return pixels_; }  // row by row

  void Dot(int x, int y, uint8_t color);
  // A rectangle with these corners, both included.
  void Fill(int x0, int y0, int x1, int y1, uint8_t color);
  // A line two pixels wide; with dashes it shows only where x lies in every other stretch of them.
  void Line(int x0, int y0, int x1, int y1, uint8_t color, int dashes = 0);
  void Circle(int x, int y, int radius, uint8_t color);
  void Cross(int x, int y, int radius, uint8_t color);
  // Text whose first letter's upper left corner is at (x, y), twice as large as the font.
  void Text(int x, int y, std::string_view text, uint8_t color);

 private:
  const int width_, height_;
  std::vector<uint8_t> pixels_;
};

inline constexpr int kLetterWidth = 12;   // of text, in pixels, with the gap behind it
inline constexpr int kLetterHeight = 14;  // above the base line
int TextWidth(std::string_view text);

}  // namespace mt::client
