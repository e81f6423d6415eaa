// The line that shows how far a data set has been made. Pure.
#pragma once

#include <string>

namespace mt::data {
struct PrepareProgress;
}  // namespace mt::data

namespace mt::client {

// " 34%  112.3 MB/s  1.23G tokens  ETA 12m05s", at most 60 columns: share of the inputs, rate of
// this run, which has taken `seconds`, and the time that is left at that rate. Of standard input,
// whose end nobody knows, "1.2 GiB  112.3 MB/s  1.23G tokens"; of the second pass of a shuffle
// "shuffle  34%  112.3 MB/s  ETA 12m05s".
std::string PrepareLine(const data::PrepareProgress& progress, double seconds);

}  // namespace mt::client
