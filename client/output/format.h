// Figures as people read them. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain::v1 {
class Job;
}

namespace mt::client {

std::string FormatBytes(int64_t bytes);                          // "1.5 GiB"
std::string FormatDuration(double seconds);                      // "58s", "3m05s", "2h07m", "4d03h"
std::string FormatRate(double per_second);                       // "950", "12.3k", "1.20M"
std::string FormatAge(int64_t unix_micros, int64_t now_micros);  // "3m05s"; "-" for 0

// "GPU-8c5c3b0e" of a GPU's UUID; "-" of none.
std::string ShortUuid(std::string_view uuid);

// "RUNNING"; in STOPPING "STOPPING(FAILED)".
std::string StateText(const megatrain::v1::Job& job);

// Columns that a terminal needs: code points, without colours.
size_t DisplayWidth(std::string_view text);

// Columns padded to their widest cell, two spaces between, no trailing spaces; the first row is the
// header. With `widths` columns are also at least as wide as it says, and it receives the new ones:
// tables printed one after another line up.
std::string Table(const std::vector<std::vector<std::string>>& rows,
                  std::vector<size_t>* widths = nullptr);

}  // namespace mt::client
