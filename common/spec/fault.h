// Faults of a job: each names its field and says what would be accepted. All faults of a job are
// reported together, so functions return lists; an empty list is success. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace mt::spec {

// One thing that is wrong with a job.
struct Fault {
  std::string path;     // "training.lr"; empty: the whole text
  std::string message;  // "must be at least 0, is -1"
};

using Faults = std::vector<Fault>;

// One line per fault, "training.lr: must be ...", no newline at the end.
std::string FormatFaults(const Faults& faults);
// OK for an empty list, else InvalidArgument with the text of FormatFaults.
[[nodiscard]] Status ToStatus(const Faults& faults);

// The candidate with the smallest edit distance to `word`, or "" where none is close enough to be
// what the user meant (a third of the word's length, at least one edit).
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace mt::spec
