// Scores a task's documents with a model: what is predicted how well, as the numbers of the task's
// type and rules (worker/decode/scores/README.md, "Scores").
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "worker/data/tokenizer/tokenizer.h"
#include "worker/decode/decode_model.h"
#include "worker/decode/scores/task.h"
#include "worker/decode/scores/task_documents.h"

namespace mt::decode {

struct TaskResult {
  int64_t documents = 0;
  int64_t tokens = 0;                                  // predicted
  int64_t cut = 0;                                     // contexts of which the beginning is gone
  std::vector<std::pair<std::string, double>> scores;  // by name, in the order to be shown
};

// Calls on the caller's thread; may be empty.
struct TaskHooks {
  std::function<void(int64_t done, int64_t all)> on_progress;  // documents
  std::function<bool()> interrupted;                           // asked before each window
};

// The task with the model's positions for a window that it does not name, and the window for a
// stride. kInvalidArgument: the window is beyond the positions, the stride beyond the window.
StatusOr<Task> WithWindows(Task task, int64_t positions);

struct RunTaskArgs {
  const Task* task = nullptr;  // by WithWindows
  const TaskDocuments* documents = nullptr;
  const data::Tokenizer* tokenizer = nullptr;
  DecodeModel* model = nullptr;  // with weights, one sequence, and as many positions as the window
  TaskHooks hooks;
};
// kInvalidArgument, by file and line where there are lines: a text without tokens, or with ones
// that the model does not have; EncodePair's errors. kFailedPrecondition: the model's logits are no
// numbers. kCancelled: interrupted.
StatusOr<TaskResult> RunTask(const RunTaskArgs& args);

}  // namespace mt::decode
