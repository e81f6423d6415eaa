// The scores of a run as JSON, as a table for people, and its progress as one line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "worker/decode/scores/run_task.h"
#include "worker/decode/scores/task.h"

namespace mt::decode {

struct ScoredTask {
  Task task;  // by WithWindows
  TaskResult result;
};

// A list of tasks with their settings and scores. A score that is no number, as the perplexity of
// what is next to impossible, is null.
nlohmann::ordered_json ScoresJson(const std::vector<ScoredTask>& tasks);
// A line for each task, one for each of its scores; control characters are written out.
std::string ScoresText(const std::vector<ScoredTask>& tasks);

// "lambada: 120 of 5153 documents, 3:20 left", in at most `columns` columns; what is left, once it
// can be told.
std::string ProgressText(std::string_view task, int64_t done, int64_t all, double seconds,
                         size_t columns);

}  // namespace mt::decode
