// Widths are of the texts without colours, which are added last.
#include "client/output/top_fields.h"

#include <algorithm>
#include <cctype>

#include "client/output/format.h"

namespace mt::client {
namespace {

constexpr std::string_view kFieldGap = "  ";
constexpr int kMark = 2;  // columns before each row

int WidthOf(std::string_view text) { return static_cast<int>(DisplayWidth(text)); }

bool HasDigit(std::string_view text) {
  return std::ranges::any_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

int WidthOf(const TopColumn& column) {
  int width = WidthOf(column.header);
  for (const std::string& cell : column.cells) width = std::max(width, WidthOf(cell));
  return width;
}

std::string Padded(const std::string& text, int width, bool right) {
  const std::string pad(static_cast<size_t>(std::max(0, width - WidthOf(text))), ' ');
  return right ? pad + text : text + pad;
}

std::string Trimmed(std::string text) {
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

// The columns that fit, and the width of each. Names are shortened to a third of the line before a
// column goes, and further only where that is not enough.
std::vector<int> DropColumns(std::vector<TopColumn>* columns, int width) {
  constexpr int kShortName = 12;
  const auto wanted = [&](const TopColumn& column) {
    const int whole = WidthOf(column);
    return column.is_name && width > 0 ? std::min(whole, std::max(kShortName, width / 3)) : whole;
  };
  std::vector<int> widths;
  const auto total = [&] {
    widths.clear();
    int sum = kMark;
    for (const TopColumn& column : *columns) {
      widths.push_back(wanted(column));
      sum += widths.back() + static_cast<int>(kFieldGap.size());
    }
    return sum - static_cast<int>(kFieldGap.size());
  };
  int sum = total();
  while (width > 0 && sum > width) {
    const auto least = std::ranges::max_element(*columns, {}, &TopColumn::goes);
    if (least == columns->end() || least->goes == 0) break;
    columns->erase(least);
    sum = total();
  }
  for (size_t i = 0; width > 0 && i < columns->size(); ++i) {
    if (!(*columns)[i].is_name) continue;
    const int before = widths[i];
    widths[i] = std::clamp(before + width - sum, 1, std::max(before, WidthOf((*columns)[i])));
    sum += widths[i] - before;
  }
  return widths;
}

}  // namespace

std::string Shortened(const std::string& text, int width) {
  if (width <= 0) return "";
  if (WidthOf(text) <= width) return text;
  std::string out;
  int columns = 0;
  for (size_t i = 0; i < text.size(); ++columns) {
    size_t next = i + 1;
    while (next < text.size() && (static_cast<unsigned char>(text[next]) & 0xC0U) == 0x80U) ++next;
    if (columns + 1 >= width) break;
    out.append(text, i, next - i);
    i = next;
  }
  return out + "~";
}

std::string FitFields(std::vector<TopField> fields, int width, const Style& style) {
  std::erase_if(fields, [](const TopField& field) { return field.text.empty(); });
  const auto total = [&] {
    int sum = 0;
    for (const TopField& field : fields)
      sum += WidthOf(field.text) + static_cast<int>(kFieldGap.size());
    return sum - static_cast<int>(kFieldGap.size());
  };
  while (width > 0 && fields.size() > 1 && total() > width)
    fields.erase(std::ranges::max_element(fields, {}, &TopField::goes));
  if (fields.empty()) return "";
  if (width > 0 && total() > width) {
    TopField& only = fields.front();
    only.text = HasDigit(only.text) ? "" : Shortened(only.text, width);
  }
  std::string line;
  for (const TopField& field : fields) {
    if (!line.empty()) line += kFieldGap;
    line += Paint(style, field.tone, field.text);
  }
  return line;
}

std::vector<std::string> FitTable(std::vector<TopColumn> columns, int selected, int width,
                                  const Style& style) {
  const std::vector<int> widths = DropColumns(&columns, width);
  const size_t rows = columns.empty() ? 0 : columns.front().cells.size();
  std::vector<std::string> lines(rows + 1);
  if (width > 0 && !widths.empty() && kMark + widths.front() > width) return lines;
  for (size_t row = 0; row <= rows; ++row) {
    std::string& line = lines[row];
    line = static_cast<int>(row) == selected + 1 && row > 0 ? "> " : "  ";
    for (size_t i = 0; i < columns.size(); ++i) {
      const TopColumn& column = columns[i];
      const std::string& whole = row == 0 ? column.header : column.cells[row - 1];
      const std::string text = column.is_name ? Shortened(whole, widths[i]) : whole;
      const bool last = i + 1 == columns.size();
      const std::string cell = last && !column.right ? text : Padded(text, widths[i], column.right);
      const bool paint = column.is_state && row > 0;
      line += paint ? Paint(style, ToneOfState(whole), cell) : cell;
      if (!last) line += kFieldGap;
    }
    line = Trimmed(std::move(line));
  }
  return lines;
}

}  // namespace mt::client
