// A canvas of dots with straight lines between neighbouring samples, then axes with round ticks
// around it.
#include "client/output/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include "client/output/format.h"

namespace mt::client {
namespace {

constexpr std::array<const char*, 4> kColors = {"36", "33", "35", "32"};

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  // Gives a range of a single value some room on both sides.
  void Widen() {
    if (high > low) return;
    const double room = low == 0 ? 1 : std::abs(low) * 0.1;
    low -= room;
    high += room;
  }
  double At(double value) const { return (value - low) / (high - low); }
};

// A grid of characters; a braille character has 2 x 4 dots, an ASCII one a single dot.
class Canvas {
 public:
  Canvas(int columns, int rows, bool ascii)
      : columns_(columns),
        rows_(rows),
        ascii_(ascii),
        cells_(static_cast<size_t>(columns) * static_cast<size_t>(rows)) {}

  int dots_x() const { return ascii_ ? columns_ : 2 * columns_; }
  int dots_y() const { return ascii_ ? rows_ : 4 * rows_; }

  // Sets the dot at (x, y), counted from the lower left corner.
  void Dot(int x, int y, size_t series) {
    // Bits of the Unicode braille block, by row from the top, then by column.
    static constexpr uint8_t kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    const int down = dots_y() - 1 - y;
    Cell& cell = ascii_ ? At(x, down) : At(x / 2, down / 4);
    cell.bits = ascii_ ? uint8_t{1} : static_cast<uint8_t>(cell.bits | kBits[down % 4][x % 2]);
    cell.series = series;
  }
  void Mark(int x, int y, size_t series) {
    const int down = dots_y() - 1 - y;
    Cell& cell = ascii_ ? At(x, down) : At(x / 2, down / 4);
    cell.mark = true;
    cell.series = series;
  }
  void Line(int x0, int y0, int x1, int y1, size_t series) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i) {
      const double t = static_cast<double>(i) / steps;
      Dot(static_cast<int>(std::lround(x0 + t * (x1 - x0))),
          static_cast<int>(std::lround(y0 + t * (y1 - y0))), series);
    }
  }

  std::string Row(int row, bool color) const {
    std::string out;
    for (int column = 0; column < columns_; ++column) {
      const Cell& cell = cells_[Index(column, row)];
      const std::string text = Text(cell);
      const bool painted = color && (cell.mark || cell.bits != 0);
      out += painted ? fmt::format("\033[{}m{}\033[0m", kColors[cell.series % kColors.size()], text)
                     : text;
    }
    return out.erase(out.find_last_not_of(' ') + 1);
  }

 private:
  struct Cell {
    uint8_t bits = 0;
    bool mark = false;
    size_t series = 0;
  };
  size_t Index(int column, int row) const {
    return static_cast<size_t>(row) * static_cast<size_t>(columns_) + static_cast<size_t>(column);
  }
  Cell& At(int column, int row) { return cells_[Index(column, row)]; }

  std::string Text(const Cell& cell) const {
    if (cell.mark) return "o";
    if (cell.bits == 0) return " ";
    if (ascii_) return "*";
    // U+2800 + bits, encoded in UTF-8.
    const unsigned code = 0x2800U + cell.bits;
    return {static_cast<char>(0xE0U | (code >> 12U)),
            static_cast<char>(0x80U | (code >> 6U & 0x3FU)),
            static_cast<char>(0x80U | (code & 0x3FU))};
  }

  const int columns_, rows_;
  const bool ascii_;
  std::vector<Cell> cells_;
};

void Draw(const Series& series, size_t index, const Range& x, const Range& y, Canvas* canvas) {
  const auto place = [](const Range& range, double value, int dots) {
    return std::clamp(static_cast<int>(std::lround(range.At(value) * (dots - 1))), 0, dots - 1);
  };
  bool joined = false;
  int last_x = 0;
  int last_y = 0;
  for (size_t i = 0; i < series.x.size(); ++i) {
    if (!std::isfinite(series.y[i])) {
      joined = false;
      continue;
    }
    const int at_x = place(x, series.x[i], canvas->dots_x());
    const int at_y = place(y, series.y[i], canvas->dots_y());
    if (series.marks) {
      canvas->Mark(at_x, at_y, index);
    } else {
      canvas->Line(joined ? last_x : at_x, joined ? last_y : at_y, at_x, at_y, index);
    }
    joined = true;
    last_x = at_x;
    last_y = at_y;
  }
}

// Prints ticks with as many digits as neighbouring ones need to differ.
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

// The x axis with its numbers, below the curves.
std::string XAxis(const Range& x, int indent, int columns, bool ascii) {
  const std::vector<double> ticks = RoundTicks(x.low, x.high, std::max(2, columns / 12));
  const std::vector<std::string> texts = TickTexts(ticks);
  std::vector<bool> is_tick(static_cast<size_t>(columns), false);
  std::string numbers(static_cast<size_t>(indent + columns), ' ');
  size_t free_from = 0;
  for (size_t i = 0; i < ticks.size(); ++i) {
    const auto column = static_cast<size_t>(std::lround(x.At(ticks[i]) * (columns - 1)));
    is_tick[column] = true;
    const size_t middle = static_cast<size_t>(indent) + column;
    size_t begin = middle - std::min(middle, texts[i].size() / 2);
    begin = std::min(begin, numbers.size() - std::min(numbers.size(), texts[i].size()));
    if (begin < free_from) continue;
    numbers.replace(begin, texts[i].size(), texts[i]);
    free_from = begin + texts[i].size() + 1;
  }
  std::string line(static_cast<size_t>(indent - 1), ' ');
  line += ascii ? "+" : "└";
  for (const bool tick : is_tick) line += ascii ? (tick ? "+" : "-") : (tick ? "┬" : "─");
  numbers.erase(numbers.find_last_not_of(' ') + 1);
  return line + "\n" + numbers + "\n";
}

std::string Title(const std::vector<Series>& series, const PlotArgs& args) {
  std::string title;
  size_t width = 0;
  for (size_t i = 0; i < series.size(); ++i) {
    const std::string mark = series[i].marks ? "o" : args.ascii ? "*" : "─";
    const std::string text = mark + " " + series[i].name;
    width += DisplayWidth(text) + 3;
    if (width > static_cast<size_t>(args.width)) break;
    if (!title.empty()) title += "   ";
    title +=
        args.color ? fmt::format("\033[{}m{}\033[0m", kColors[i % kColors.size()], text) : text;
  }
  return title + "\n";
}

}  // namespace

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

std::string Plot(const std::vector<Series>& series, const PlotArgs& args) {
  Range x, y;
  for (const Series& one : series) {
    for (size_t i = 0; i < one.x.size(); ++i) {
      if (!std::isfinite(one.y[i])) continue;
      x.Add(one.x[i]);
      y.Add(one.y[i]);
    }
  }
  if (!(x.low <= x.high)) return "";
  x.Widen();
  y.Widen();
  const int rows = std::max(6, args.height) - 3;
  const std::vector<double> ticks = RoundTicks(y.low, y.high, std::max(2, rows / 3));
  const std::vector<std::string> texts = TickTexts(ticks);
  size_t label_width = 0;
  for (const std::string& text : texts) label_width = std::max(label_width, text.size());
  const int indent = static_cast<int>(label_width) + 2;
  const int columns = std::max(10, std::max(30, args.width) - indent);
  std::vector<std::string> labels(static_cast<size_t>(rows));
  for (size_t i = 0; i < ticks.size(); ++i) {
    const long row = std::lround((1 - y.At(ticks[i])) * (rows - 1));
    labels[static_cast<size_t>(std::clamp(row, 0L, static_cast<long>(rows - 1)))] = texts[i];
  }
  Canvas canvas(columns, rows, args.ascii);
  for (size_t i = 0; i < series.size(); ++i) Draw(series[i], i, x, y, &canvas);
  std::string out = Title(series, args);
  for (int row = 0; row < rows; ++row) {
    const std::string& label = labels[static_cast<size_t>(row)];
    const char* axis = args.ascii ? (label.empty() ? "|" : "+") : (label.empty() ? "│" : "┤");
    out += fmt::format("{:>{}} {}{}\n", label, label_width, axis, canvas.Row(row, args.color));
  }
  return out + XAxis(x, indent, columns, args.ascii);
}

}  // namespace mt::client
