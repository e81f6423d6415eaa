// Curves drawn with characters: braille dots (2 x 4 per character) or plain ASCII. Pure.
#pragma once

#include <string>
#include <vector>

#include "client/plot/series.h"

namespace mt::client {

// Size and look of the plot.
struct PlotArgs {
  int width = 80;   // characters, with the axes and their numbers; at least 30
  int height = 20;  // lines, with legend and axis; at least 6
  bool ascii = false;
  bool color = false;
  bool perplexity = false;  // e^y on the right, where there is room
};

// A legend with the names, the curves, a y axis with round numbers on the left and an x axis below.
// Of two runs the curves carry letters, A and B, and other characters. "" where no series has a
// finite point. No line is longer than the width; a name that is, is cut.
std::string Plot(const std::vector<Series>& series, const PlotArgs& args);

}  // namespace mt::client
