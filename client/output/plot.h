// Curves drawn with characters: braille dots (2 x 4 per character), or plain ASCII. Pure.
#pragma once

#include <string>
#include <vector>

namespace mt::client {

struct Series {
  std::string name;
  std::vector<double> x, y;  // equal lengths, x rising; a y that is not finite interrupts the line
  bool marks = false;        // single points as 'o', not joined
};

struct PlotArgs {
  int width = 80;   // characters, axes and their numbers included; at least 30
  int height = 20;  // lines, title and axes included; at least 6
  bool ascii = false;
  bool color = false;
};

// A title line with the names, the curves, a y axis with round numbers at the left and an x axis
// below. "" where no series has a finite point. No line is longer than the width.
std::string Plot(const std::vector<Series>& series, const PlotArgs& args);

// About `count` round numbers (1, 2 or 5 times a power of ten apart) within [low, high].
std::vector<double> RoundTicks(double low, double high, int count);

}  // namespace mt::client
