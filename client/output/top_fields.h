// Lines of fields that are left out whole where room is short. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "client/output/style.h"

namespace mt::client {

struct TopField {
  std::string text;
  int goes = 0;  // the highest goes first
  Tone tone = Tone::kPlain;
};

// The fields with two spaces between, as many as fit into `width` columns (0: all). Where one alone
// is too wide it is cut if it is a word, and left out if a digit would be cut off.
std::string FitFields(std::vector<TopField> fields, int width, const Style& style);

// The text in `width` columns: as it is, or its beginning with a ~ behind it. "" where no room is.
std::string Shortened(const std::string& text, int width);

struct TopColumn {
  std::string header;
  std::vector<std::string> cells;  // one a row
  int goes = 0;                    // as in TopField; 0 never
  bool is_name = false;            // may be shortened
  bool is_state = false;           // painted by ToneOfState
  bool right = false;              // figures
};

// The header and the rows, each behind two columns for a mark at the selected one (-1: none).
// Columns that do not fit are left out; then names are shortened.
std::vector<std::string> FitTable(std::vector<TopColumn> columns, int selected, int width,
                                  const Style& style);

}  // namespace mt::client
