// What is wrong with a job: every fault names its field and says what would be accepted. All faults
// of a job are reported together, so functions return lists; an empty list is success.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace mt::spec {

struct Fault {
  std::string path;     // "training.lr"; empty: the whole text
  std::string message;  // "must be at least 0, is -1"
};

using Faults = std::vector<Fault>;

// One line per fault, "training.lr: must be ...", no newline at the end.
std::string FormatFaults(const Faults& faults);
// OK for an empty list, else InvalidArgument with FormatFaults' text.
[[nodiscard]] Status ToStatus(const Faults& faults);

// The candidate with the smallest edit distance to `word`, or "" where none is near enough to be
// meant.
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace mt::spec
