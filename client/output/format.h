// Figures in the form in which people read them. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain::v1 {
class EvalRecord;
class Job;
}  // namespace megatrain::v1

namespace mt::client {

std::string FormatBytes(int64_t bytes);      // "1.5 GiB"
std::string FormatDuration(double seconds);  // "58s", "3m05s", "2h07m", "4d03h"
std::string FormatRate(double per_second);   // "950", "12.3k", "1.20M"
std::string FormatTokens(int64_t tokens);    // "950", "1.20M", "2.60G"
// Passes over the data: "29.1 passes over train, 0.25 over valid", without what is 0; "" for both.
std::string FormatPasses(double train, double valid);
// The loss of an evaluation in other units: ", perplexity 7.199, 2.8478 bits per byte", without
// what is not known; "" for neither.
std::string LossUnitsText(const megatrain::v1::EvalRecord& eval);
std::string FormatAge(int64_t unix_micros, int64_t now_micros);  // "3m05s"; "-" for 0

// The beginning of a GPU's UUID: "GPU-8c5c3b0e"; "-" for "".
std::string ShortUuid(std::string_view uuid);

// The job's state: "RUNNING"; in STOPPING with the state that follows: "STOPPING(FAILED)".
std::string StateText(const megatrain::v1::Job& job);
// What the job's other steps take at the speed of its last one: "2m05s"; "-" where that is unknown.
std::string TimeLeftText(const megatrain::v1::Job& job);
// True of a job that has succeeded, failed or been cancelled.
bool HasEnded(const megatrain::v1::Job& job);

// Columns that the text takes on a terminal: code points, not counting colours.
size_t DisplayWidth(std::string_view text);

// A table whose columns are padded to their widest cell, with two spaces between and no trailing
// spaces; the first row is the header. With `widths`, columns are at least as wide as *widths says,
// and *widths receives the new widths, so that successive tables line up.
std::string Table(const std::vector<std::vector<std::string>>& rows,
                  std::vector<size_t>* widths = nullptr);

}  // namespace mt::client
