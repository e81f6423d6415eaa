// The documents of a task, read and cleaned by its rules. Reading blocks; files are read whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/decode/scores/task.h"

namespace mt::decode {

// A text whose every token is predicted.
struct ScoredText {
  std::string text;              // as it is scored
  int64_t words = 0, bytes = 0;  // as it was
};
// A context and what may follow it, with the blank between. Of a last word there is one.
struct Question {
  struct Choice {
    std::string text;
    int64_t characters = 0, bytes = 0;  // without the blank
  };
  std::string context;
  std::vector<Choice> choices;
  int64_t answer = 0;
  int64_t line = 0;  // of the file, from 1
};
struct TaskDocuments {
  std::vector<ScoredText> texts;    // of kPerplexity
  std::vector<Question> questions;  // of the others
  int64_t size() const { return std::ssize(texts) + std::ssize(questions); }
};

// `text` is what the task's file has. kInvalidArgument, by file and line: a line that is not what
// type and rules ask for; text that is no UTF-8; no document.
StatusOr<TaskDocuments> ParseDocuments(const Task& task, std::string_view text);
// The same of the file. Errors: the system's besides.
StatusOr<TaskDocuments> ReadDocuments(const Task& task);

}  // namespace mt::decode
