// Ticks are 1, 2 or 5 times a power of ten apart.
#include "client/plot/axes.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "client/output/format.h"
#include "client/plot/series.h"

namespace mt::client {

void AxisRange::Add(double value) {
  low = std::min(low, value);
  high = std::max(high, value);
}

void AxisRange::Widen() {
  if (high > low) return;
  const double room = low == 0 ? 1 : std::abs(low) * 0.1;
  low -= room;
  high += room;
}

bool RangesOf(const std::vector<Series>& series, AxisRange* x, AxisRange* y) {
  for (const Series& one : series) {
    for (size_t i = 0; i < one.x.size(); ++i) {
      if (!std::isfinite(one.y[i])) continue;
      x->Add(one.x[i]);
      y->Add(one.y[i]);
    }
  }
  if (x->empty()) return false;
  x->Widen();
  y->Widen();
  return true;
}

std::vector<double> RoundTicks(double low, double high, int count) {
  const double rough = (high - low) / std::max(1, count);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * (1 - 1e-9)) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  for (double tick = std::ceil(low / step - 1e-9); tick * step <= high + step * 1e-9; ++tick)
    ticks.push_back(tick * step);
  if (ticks.empty()) ticks.push_back(low);
  return ticks;
}

std::vector<std::string> TickTexts(const std::vector<double>& ticks) {
  const double step = ticks.size() > 1 ? ticks[1] - ticks[0] : std::abs(ticks[0]);
  const double most = std::max(std::abs(ticks.front()), std::abs(ticks.back()));
  const int digits =
      step > 0 ? std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9))) : 0;
  std::vector<std::string> out;
  for (const double tick : ticks) {
    const double clean = std::abs(tick) < step * 1e-6 ? 0 : tick;
    out.push_back(digits > 5 || most >= 1e7 ? fmt::format("{:.3g}", clean)
                                            : fmt::format("{:.{}f}", clean, digits));
  }
  return out;
}

std::string PerplexityText(double loss) {
  const double value = std::exp(loss);
  if (value < 1000) return fmt::format("{:.3g}", value);
  return value < 1e9 ? FormatRate(value) : fmt::format("{:.1e}", value);
}

}  // namespace mt::client
