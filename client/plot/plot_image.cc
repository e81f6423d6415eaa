// The area of the curves within its margins; its first and last pixels are the ends of the ranges.
#include "client/plot/plot_image.h"

#include <algorithm>
#include <cmath>

#include "client/plot/axes.h"
#include "client/plot/image.h"
#include "client/plot/png.h"

namespace mt::client {
namespace {

enum Color : uint8_t { kWhite, kBlack, kGrid, kFirst, kSecond, kFirstMarks, kSecondMarks };
// Colours that people who see red and green alike tell apart.
constexpr Rgb kPalette[] = {{255, 255, 255}, {32, 32, 32}, {224, 224, 224}, {0, 114, 178},
                            {213, 94, 0},    {0, 48, 92},  {122, 44, 0}};

constexpr int kDashes = 8;
constexpr int kRadius = 5;
constexpr int kGap = 10;         // between text and what it stands at
constexpr int kLineHeight = 28;  // of the legend
constexpr int kSample = 40;      // of a line, in the legend
constexpr int kTick = 6;

Color ColorOf(const Series& series) {
  if (series.marks) return series.second ? kSecondMarks : kFirstMarks;
  return series.second ? kSecond : kFirst;
}

void DrawMark(const Series& series, int x, int y, Image* image) {
  if (series.second) return image->Cross(x, y, kRadius, ColorOf(series));
  image->Circle(x, y, kRadius, ColorOf(series));
}

// The pixels of the curves.
struct Area {
  int left, top, right, bottom;
  AxisRange x_range, y_range;

  int X(double value) const {
    return left + static_cast<int>(std::lround(x_range.At(value) * (right - left)));
  }
  int Y(double value) const {
    return bottom - static_cast<int>(std::lround(y_range.At(value) * (bottom - top)));
  }
};

// Writes the names with their lines from the upper left corner on; returns the height that they
// take.
int DrawLegend(const std::vector<Series>& series, Image* image) {
  int x = kGap;
  int y = kGap;
  for (const Series& one : series) {
    const int room = (image->width() - kSample - 4 * kGap) / kLetterWidth;
    const std::string name = one.name.substr(0, static_cast<size_t>(std::max(room, 1)));
    const int width = kSample + kGap + TextWidth(name);
    if (x > kGap && x + width > image->width() - kGap) {
      x = kGap;
      y += kLineHeight;
    }
    const int middle = y + kLetterHeight / 2;
    if (one.marks) {
      DrawMark(one, x + kSample / 2, middle, image);
    } else {
      image->Line(x, middle, x + kSample, middle, ColorOf(one), one.second ? kDashes : 0);
    }
    image->Text(x + kSample + kGap, y, name, kBlack);
    x += width + 3 * kGap;
  }
  return y + kLineHeight;
}

void DrawAxes(const Area& area, const PlotImageArgs& args, Image* image) {
  const std::vector<double> rows =
      RoundTicks(area.y_range.low, area.y_range.high, (area.bottom - area.top) / 60);
  const std::vector<std::string> row_texts = TickTexts(rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    const int y = area.Y(rows[i]);
    image->Fill(area.left, y, area.right, y, kGrid);
    image->Fill(area.left - kTick, y, area.left, y, kBlack);
    image->Text(area.left - kTick - kGap / 2 - TextWidth(row_texts[i]), y - kLetterHeight / 2,
                row_texts[i], kBlack);
    if (!args.perplexity) continue;
    image->Fill(area.right, y, area.right + kTick, y, kBlack);
    image->Text(area.right + kTick + kGap / 2, y - kLetterHeight / 2, PerplexityText(rows[i]),
                kBlack);
  }
  const std::vector<double> columns =
      RoundTicks(area.x_range.low, area.x_range.high, (area.right - area.left) / 120);
  const std::vector<std::string> column_texts = TickTexts(columns);
  for (size_t i = 0; i < columns.size(); ++i) {
    const int x = area.X(columns[i]);
    image->Fill(x, area.top, x, area.bottom, kGrid);
    image->Fill(x, area.bottom, x, area.bottom + kTick, kBlack);
    const int width = TextWidth(column_texts[i]);
    image->Text(std::min(x - width / 2, image->width() - width), area.bottom + kTick + kGap / 2,
                column_texts[i], kBlack);
  }
  const int above = area.top - kLetterHeight - kGap;
  image->Text(kGap, above, args.y_name, kBlack);
  if (args.perplexity)
    image->Text(image->width() - kGap - TextWidth("perplexity"), above, "perplexity", kBlack);
  image->Text((area.left + area.right - TextWidth("step")) / 2,
              image->height() - kLetterHeight - kGap, "step", kBlack);
}

// The lines of the axes, over the curves, which may run along them.
void DrawFrame(const Area& area, const PlotImageArgs& args, Image* image) {
  image->Fill(area.left, area.top, area.left, area.bottom, kBlack);
  image->Fill(area.left, area.bottom, area.right, area.bottom, kBlack);
  if (args.perplexity) image->Fill(area.right, area.top, area.right, area.bottom, kBlack);
}

void DrawCurve(const Series& series, const Area& area, Image* image) {
  bool joined = false;
  int last_x = 0;
  int last_y = 0;
  for (size_t i = 0; i < series.x.size(); ++i) {
    if (!std::isfinite(series.y[i])) {
      joined = false;
      continue;
    }
    const int x = area.X(series.x[i]);
    const int y = area.Y(series.y[i]);
    if (series.marks) {
      DrawMark(series, x, y, image);
    } else {
      image->Line(joined ? last_x : x, joined ? last_y : y, x, y, ColorOf(series),
                  joined && series.second ? kDashes : 0);
    }
    joined = true;
    last_x = x;
    last_y = y;
  }
}

}  // namespace

std::string PlotPng(const std::vector<Series>& series, const PlotImageArgs& args) {
  Area area{};
  if (!RangesOf(series, &area.x_range, &area.y_range)) return "";
  Image image(std::max(400, args.width), std::max(300, args.height));
  const int legend = DrawLegend(series, &image);
  area.left = TextWidth("0.00000") + 3 * kGap;
  area.right = image.width() - (args.perplexity ? TextWidth("1.0e+10") + 3 * kGap : 4 * kGap);
  area.top = legend + kLetterHeight + 2 * kGap;
  area.bottom = image.height() - 2 * kLetterHeight - 4 * kGap;
  DrawAxes(area, args, &image);
  for (const bool marks : {false, true}) {
    for (const Series& one : series) {
      if (one.marks == marks) DrawCurve(one, area, &image);
    }
  }
  DrawFrame(area, args, &image);
  return EncodePng(image.width(), image.height(), kPalette, image.pixels());
}

}  // namespace mt::client
