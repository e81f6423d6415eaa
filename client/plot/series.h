// A curve to be drawn, and smoothing. Pure.
#pragma once

#include <string>
#include <vector>

namespace mt::client {

// A curve.
struct Series {
  std::string name;
  std::vector<double> x,
      y;                // equal lengths, x ascending; a y that is not finite interrupts the curve
  bool marks = false;   // draws single points instead of a line
  bool second = false;  // of the second of two runs: drawn so that it differs without colours
};

// The curve's exponential moving average: a point that lies d steps back counts exp(-d / steps),
// and the weights of those there are make 1, so that the curve begins at its first point. Points
// that are not finite stay so and count nothing. `steps` is above 0.
Series Smoothed(const Series& series, double steps);

}  // namespace mt::client
