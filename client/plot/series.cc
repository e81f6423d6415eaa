// One pass with the sum of weights beside the sum of weighted values.
#include "client/plot/series.h"

#include <cmath>

namespace mt::client {

Series Smoothed(const Series& series, double steps) {
  Series out = series;
  double weighted = 0;
  double weights = 0;
  double last_x = 0;
  for (size_t i = 0; i < out.y.size(); ++i) {
    if (!std::isfinite(series.y[i])) continue;
    const double keep = weights > 0 ? std::exp((last_x - series.x[i]) / steps) : 0;
    weighted = keep * weighted + series.y[i];
    weights = keep * weights + 1;
    last_x = series.x[i];
    out.y[i] = weighted / weights;
  }
  return out;
}

}  // namespace mt::client
