// What a plot in characters and one in pixels share: the range of an axis, its round ticks and
// their texts. Pure.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace mt::client {

// The values of an axis, from low to high.
struct AxisRange {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  // True where no value was added.
  bool empty() const { return !(low <= high); }
  void Add(double value);
  // Gives a range of a single value some room on both sides.
  void Widen();
  // Where the value lies: 0 at the low end, 1 at the high one.
  double At(double value) const { return (value - low) / (high - low); }
};

struct Series;
// The ranges of all finite points, widened; false where there is none.
bool RangesOf(const std::vector<Series>& series, AxisRange* x, AxisRange* y);

// About `count` round numbers within [low, high], 1, 2 or 5 times a power of ten apart.
std::vector<double> RoundTicks(double low, double high, int count);
// The ticks with as many digits as neighbouring ones need to differ.
std::vector<std::string> TickTexts(const std::vector<double>& ticks);

// e to the power of a loss in nats: "7.39", "1.20k".
std::string PerplexityText(double loss);

}  // namespace mt::client
