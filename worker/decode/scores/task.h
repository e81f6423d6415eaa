// What is to be scored: the tasks of a task file (worker/decode/scores/README.md, "Task file").
// Reading blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace mt::decode {

enum class TaskType : uint8_t { kPerplexity, kLastWord, kMultipleChoice };
// How texts are divided, cleaned and made tokens (worker/decode/scores/README.md, "Rules").
enum class TaskRules : uint8_t { kPlain, kWikitext, kHellaswag, kLlmC };
// "perplexity", "last_word", "multiple_choice"; "plain", "wikitext", "hellaswag", "llm.c".
std::string_view Name(TaskType type);
std::string_view Name(TaskRules rules);

struct Task {
  std::string name;
  TaskType type = TaskType::kPerplexity;
  TaskRules rules = TaskRules::kPlain;
  std::string file;    // a relative one is beside the task file
  std::string key;     // of the text in lines of JSON; empty: the file is text
  int64_t window = 0;  // tokens that are read at most; 0: the model's positions
  int64_t stride = 0;  // 0: the window
  int64_t limit = 0;   // documents that are scored, the first ones; 0: all
};

// `name` is the file's, for messages; a relative file of a task lies in `folder`. kInvalidArgument:
// it is no YAML or has no list of tasks, or a field is unknown, missing or without a meaning.
StatusOr<std::vector<Task>> ParseTasks(std::string_view text, const std::string& name,
                                       const std::string& folder);
// The same of a file. Errors: the system's besides.
StatusOr<std::vector<Task>> ReadTasks(const std::string& path);

}  // namespace mt::decode
