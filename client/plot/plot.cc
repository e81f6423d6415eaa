// A canvas of dots with straight lines between neighbouring samples, then axes with round ticks
// around it.
#include "client/plot/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "client/output/format.h"
#include "client/plot/axes.h"

namespace mt::client {
namespace {

constexpr std::array<const char*, 4> kColors = {"36", "33", "35", "32"};
constexpr int kLetterEvery = 14;    // columns between the letters of a curve
constexpr int kRightAxisFrom = 50;  // narrower plots have no second axis

// A grid of characters; a braille character has 2 x 4 dots, an ASCII one a single dot.
class Canvas {
 public:
  Canvas(int columns, int rows, bool ascii)
      : columns_(columns),
        rows_(rows),
        ascii_(ascii),
        cells_(static_cast<size_t>(columns) * static_cast<size_t>(rows)) {}

  int columns() const { return columns_; }
  int dots_x() const { return ascii_ ? columns_ : 2 * columns_; }
  int dots_y() const { return ascii_ ? rows_ : 4 * rows_; }

  // Sets the dot at (x, y), counted from the lower left corner; `fill` stands for it in ASCII.
  void Dot(int x, int y, size_t series, char fill) {
    // Bits of the Unicode braille block, by row from the top, then by column.
    static constexpr uint8_t kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    const int down = dots_y() - 1 - y;
    Cell& cell = CellAt(x, down);
    cell.bits = ascii_ ? uint8_t{1} : static_cast<uint8_t>(cell.bits | kBits[down % 4][x % 2]);
    cell.fill = fill;
    cell.series = series;
  }
  // Puts a character over the dots.
  void Mark(int x, int y, size_t series, char mark) {
    Cell& cell = CellAt(x, dots_y() - 1 - y);
    cell.mark = mark;
    cell.series = series;
  }
  void Line(int x0, int y0, int x1, int y1, size_t series, char fill) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i) {
      const double t = static_cast<double>(i) / steps;
      Dot(static_cast<int>(std::lround(x0 + t * (x1 - x0))),
          static_cast<int>(std::lround(y0 + t * (y1 - y0))), series, fill);
    }
  }

  std::string Row(int row, bool color) const {
    std::string out;
    for (int column = 0; column < columns_; ++column) {
      const Cell& cell = cells_[Index(column, row)];
      const std::string text = Text(cell);
      const bool painted = color && (cell.mark != 0 || cell.bits != 0);
      out += painted ? fmt::format("\033[{}m{}\033[0m", kColors[cell.series % kColors.size()], text)
                     : text;
    }
    return out;
  }

 private:
  struct Cell {
    uint8_t bits = 0;
    char fill = '*';
    char mark = 0;
    size_t series = 0;
  };
  size_t Index(int column, int row) const {
    return static_cast<size_t>(row) * static_cast<size_t>(columns_) + static_cast<size_t>(column);
  }
  Cell& CellAt(int x, int down) {
    return ascii_ ? cells_[Index(x, down)] : cells_[Index(x / 2, down / 4)];
  }

  std::string Text(const Cell& cell) const {
    if (cell.mark != 0) return {cell.mark};
    if (cell.bits == 0) return " ";
    if (ascii_) return {cell.fill};
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

char FillOf(const Series& series) { return series.second ? '+' : '*'; }
char MarkOf(const Series& series) { return series.second ? 'x' : 'o'; }

bool OfTwoRuns(const std::vector<Series>& series) {
  return std::ranges::any_of(series, &Series::second);
}

// Draws the curve, and along it its letter where it has one (0: none).
void Draw(const Series& series, size_t index, const AxisRange& x, const AxisRange& y, char letter,
          Canvas* canvas) {
  const auto place = [](const AxisRange& range, double value, int dots) {
    return std::clamp(static_cast<int>(std::lround(range.At(value) * (dots - 1))), 0, dots - 1);
  };
  const int every = kLetterEvery * canvas->dots_x() / std::max(1, canvas->columns());
  int next_letter = series.second ? every : every / 2;  // the two stand apart
  bool joined = false;
  int last_x = 0;
  int last_y = 0;
  std::vector<std::pair<int, int>> letters, points;
  for (size_t i = 0; i < series.x.size(); ++i) {
    if (!std::isfinite(series.y[i])) {
      joined = false;
      continue;
    }
    const int at_x = place(x, series.x[i], canvas->dots_x());
    const int at_y = place(y, series.y[i], canvas->dots_y());
    if (series.marks) {
      canvas->Mark(at_x, at_y, index, MarkOf(series));
    } else {
      canvas->Line(joined ? last_x : at_x, joined ? last_y : at_y, at_x, at_y, index,
                   FillOf(series));
    }
    if (!series.marks && at_x >= next_letter) {
      letters.emplace_back(at_x, at_y);
      next_letter = at_x + every;
    }
    points.emplace_back(at_x, at_y);
    joined = true;
    last_x = at_x;
    last_y = at_y;
  }
  if (letter == 0 || series.marks) return;
  if (letters.empty() && !points.empty()) letters.push_back(points[points.size() / 2]);
  for (const auto& [at_x, at_y] : letters) canvas->Mark(at_x, at_y, index, letter);
}

// The x axis with its numbers, below the curves.
std::string XAxis(const AxisRange& x, int indent, int columns, bool ascii) {
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

// What a legend calls the curve, at most `width` columns wide: "A ─ gpt-demo loss".
std::string LegendText(const Series& series, const PlotArgs& args, char letter) {
  std::string sign = series.marks ? std::string{MarkOf(series)}
                     : args.ascii ? std::string{FillOf(series)}
                                  : "─";
  if (letter != 0 && !series.marks) sign = std::string{letter} + " " + sign;
  const size_t room = static_cast<size_t>(args.width) - DisplayWidth(sign) - 1;
  const std::string name =
      series.name.size() <= room ? series.name : series.name.substr(0, room - 3) + "...";
  return sign + " " + name;
}

struct Legend {
  std::vector<std::string> lines;
  size_t last_width = 0;  // columns of the last line

  void Add(const std::string& text, size_t text_width, const std::string& gap, size_t width) {
    if (lines.empty() || last_width + gap.size() + text_width > width) {
      lines.push_back(text);
      last_width = text_width;
    } else {
      lines.back() += gap + text;
      last_width += gap.size() + text_width;
    }
  }
};

// The names, in as many lines as they need; the last one ends with the heading of the axis on the
// right.
std::vector<std::string> LegendLines(const std::vector<Series>& series, const PlotArgs& args,
                                     bool right) {
  Legend legend;
  const bool letters = OfTwoRuns(series);
  const auto width = static_cast<size_t>(args.width);
  for (size_t i = 0; i < series.size(); ++i) {
    const char letter = !letters ? '\0' : series[i].second ? 'B' : 'A';
    const std::string text = LegendText(series[i], args, letter);
    legend.Add(
        args.color ? fmt::format("\033[{}m{}\033[0m", kColors[i % kColors.size()], text) : text,
        DisplayWidth(text), "   ", width);
  }
  if (right) {
    constexpr std::string_view kHeading = "perplexity";
    const size_t used = legend.last_width + kHeading.size() + 3 > width ? 0 : legend.last_width;
    if (used == 0) legend.lines.emplace_back();
    legend.lines.back() += std::string(width - used - kHeading.size(), ' ').append(kHeading);
  }
  return legend.lines;
}

// The numbers of the y axis: on the left the values, on the right e to the power of them.
struct YLabels {
  std::vector<std::string> left, right;  // of each row; "" without a tick
  size_t left_width = 0, right_width = 0;
};

YLabels MakeYLabels(const AxisRange& y, int rows) {
  YLabels labels;
  labels.left.resize(static_cast<size_t>(rows));
  labels.right.resize(static_cast<size_t>(rows));
  const std::vector<double> ticks = RoundTicks(y.low, y.high, std::max(2, rows / 3));
  const std::vector<std::string> texts = TickTexts(ticks);
  for (size_t i = 0; i < ticks.size(); ++i) {
    const long row = std::lround((1 - y.At(ticks[i])) * (rows - 1));
    const auto at = static_cast<size_t>(std::clamp(row, 0L, static_cast<long>(rows - 1)));
    labels.left[at] = texts[i];
    labels.right[at] = PerplexityText(ticks[i]);
    labels.left_width = std::max(labels.left_width, texts[i].size());
    labels.right_width = std::max(labels.right_width, labels.right[at].size());
  }
  return labels;
}

std::string Stripped(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::string Plot(const std::vector<Series>& series, const PlotArgs& args) {
  AxisRange x, y;
  if (!RangesOf(series, &x, &y)) return "";
  const bool right = args.perplexity && args.width >= kRightAxisFrom;
  const std::vector<std::string> legend = LegendLines(series, args, right);
  const int rows = std::max(3, std::max(6, args.height) - 2 - static_cast<int>(legend.size()));
  const YLabels labels = MakeYLabels(y, rows);
  const int indent = static_cast<int>(labels.left_width) + 2;
  const int margin = right ? static_cast<int>(labels.right_width) + 2 : 0;
  const int columns = std::max(10, std::max(30, args.width) - indent - margin);
  Canvas canvas(columns, rows, args.ascii);
  const bool letters = OfTwoRuns(series);
  // Single points last: they stand over the lines.
  for (const bool marks : {false, true}) {
    for (size_t i = 0; i < series.size(); ++i) {
      const char letter = !letters ? '\0' : series[i].second ? 'B' : 'A';
      if (series[i].marks == marks) Draw(series[i], i, x, y, letter, &canvas);
    }
  }
  std::string out;
  for (const std::string& line : legend) out += line + "\n";
  for (int row = 0; row < rows; ++row) {
    const auto at = static_cast<size_t>(row);
    const bool tick = !labels.left[at].empty();
    const char* axis = args.ascii ? (tick ? "+" : "|") : (tick ? "┤" : "│");
    std::string line = fmt::format("{:>{}} {}{}", labels.left[at], labels.left_width, axis,
                                   canvas.Row(row, args.color));
    if (right) {
      const char* end = args.ascii ? (tick ? "+" : "|") : (tick ? "├" : "│");
      line += fmt::format("{} {}", end, labels.right[at]);
    }
    out += Stripped(line) + "\n";
  }
  return out + XAxis(x, indent, columns, args.ascii);
}

}  // namespace mt::client
