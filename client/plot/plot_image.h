// Curves as a picture: what Plot draws with characters, as a PNG file. Pure.
#pragma once

#include <string>
#include <vector>

#include "client/plot/series.h"

namespace mt::client {

// Size and look of the picture.
struct PlotImageArgs {
  int width = 1200;         // pixels; at least 400
  int height = 700;         // at least 300
  std::string y_name;       // over the axis on the left
  bool perplexity = false;  // e^y on the right
};

// The bytes of a PNG file: legend, curves, round ticks with numbers on both axes, the names of the
// axes. The curves of the second run are dashed, its points crosses. "" where no series has a
// finite point.
std::string PlotPng(const std::vector<Series>& series, const PlotImageArgs& args);

}  // namespace mt::client
