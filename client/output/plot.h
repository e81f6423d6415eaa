// Curves drawn with characters: braille dots (2 x 4 per character) or plain ASCII. Pure.
#pragma once

#include <string>
#include <vector>

namespace mt::client {

// A curve.
struct Series {
  std::string name;
  std::vector<double> x,
      y;               // equal lengths, x ascending; a y that is not finite interrupts the curve
  bool marks = false;  // draws single points as 'o' instead of a line
};

// Size and look of the plot.
struct PlotArgs {
  int width = 80;   // characters, with the axis and its numbers; at least 30
  int height = 20;  // lines, with title and axis; at least 6
  bool ascii = false;
  bool color = false;
};

// A title line with the names, the curves, a y axis with round numbers on the left and an x axis
// below. "" where no series has a finite point. No line is longer than the width.
std::string Plot(const std::vector<Series>& series, const PlotArgs& args);

// About `count` round numbers within [low, high], 1, 2 or 5 times a power of ten apart.
std::vector<double> RoundTicks(double low, double high, int count);

}  // namespace mt::client
