// Fields are looked up by name in a tree that is plain YAML; what is wrong is said of one task at a
// time.
#include "worker/decode/scores/task.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <utility>

#include "common/base/files.h"
#include "common/spec/fault.h"
#include "common/spec/tree.h"

namespace mt::decode {
namespace {

using spec::TreeNode;

constexpr std::array kTypes = {TaskType::kPerplexity, TaskType::kLastWord,
                               TaskType::kMultipleChoice};
constexpr std::array kRules = {TaskRules::kPlain, TaskRules::kWikitext, TaskRules::kHellaswag,
                               TaskRules::kLlmC};

bool Fits(TaskRules rules, TaskType type) {
  switch (rules) {
    case TaskRules::kPlain:
      return true;
    case TaskRules::kWikitext:
      return type == TaskType::kPerplexity;
    case TaskRules::kHellaswag:
    case TaskRules::kLlmC:
      break;
  }
  return type == TaskType::kMultipleChoice;
}

// "a, b or c".
std::string Listed(const std::vector<std::string>& words) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 < words.size() ? ", " : " or ";
    out += words[i];
  }
  return out;
}

// The value of `all` that is called so.
template <class Enum, size_t n>
Status ReadName(const std::array<Enum, n>& all, std::string_view word, Enum* out) {
  std::vector<std::string> names;
  for (const Enum one : all) {
    if (Name(one) == word) {
      *out = one;
      return OkStatus();
    }
    names.emplace_back(Name(one));
  }
  return base::InvalidArgument("is \"{}\": {} are possible", spec::Shown(word), Listed(names));
}

Status ReadCount(std::string_view word, int64_t* out) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), *out);
  if (error == std::errc() && end == word.data() + word.size() && *out >= 1 &&
      *out <= int64_t{1} << 40)
    return OkStatus();
  return base::InvalidArgument("is \"{}\": a whole number from 1 is wanted", spec::Shown(word));
}

Status ReadText(std::string_view word, std::string* out) {
  *out = word;
  return OkStatus();
}

// One field of a task.
Status ReadField(const std::string& key, std::string_view word, Task* task) {
  if (word.empty()) return base::InvalidArgument("is empty");
  if (key == "name") return ReadText(word, &task->name);
  if (key == "file") return ReadText(word, &task->file);
  if (key == "key") return ReadText(word, &task->key);
  if (key == "type") return ReadName(kTypes, word, &task->type);
  if (key == "rules") return ReadName(kRules, word, &task->rules);
  if (key == "window") return ReadCount(word, &task->window);
  if (key == "stride") return ReadCount(word, &task->stride);
  if (key == "limit") return ReadCount(word, &task->limit);
  const std::vector<std::string> known = {"name", "type",   "rules",  "file",
                                          "key",  "window", "stride", "limit"};
  const std::string near = spec::Nearest(key, known);
  return base::InvalidArgument("is no field of a task{}: {} are possible",
                               near.empty() ? "" : ", " + near + " is", Listed(known));
}

Status CheckTask(const Task& task) {
  if (!Fits(task.rules, task.type)) {
    return base::InvalidArgument("rules {} are not for a task of type {}", Name(task.rules),
                                 Name(task.type));
  }
  const bool rolls = task.type == TaskType::kPerplexity;
  if (task.stride > 0 && !rolls)
    return base::InvalidArgument("stride is for perplexity: other tasks have one window a text");
  if (task.stride > task.window && task.window > 0) {
    return base::InvalidArgument(
        "stride {} is beyond window {}: tokens between would not be scored", task.stride,
        task.window);
  }
  if (!task.key.empty() && task.type == TaskType::kMultipleChoice)
    return base::InvalidArgument("key is for texts: fields of a question have names of their own");
  return OkStatus();
}

StatusOr<Task> ReadTask(TreeNode node, const std::string& folder) {
  if (node.kind != TreeNode::Kind::kMap)
    return base::InvalidArgument("is no map of fields (name, type, file)");
  Task task;
  for (size_t i = 0; i < node.keys.size(); ++i) {
    if (node.items[i].kind != TreeNode::Kind::kScalar)
      return base::InvalidArgument("{}: one value is wanted", spec::Shown(node.keys[i]));
    const Status read = ReadField(node.keys[i], node.items[i].scalar, &task);
    if (!read.ok())
      return base::InvalidArgument("{} {}", spec::Shown(node.keys[i]), base::Message(read));
  }
  for (const char* const required : {"name", "type", "file"})
    if (node.Find(required) == nullptr) return base::InvalidArgument("{} is missing", required);
  RETURN_IF_ERROR(CheckTask(task));
  if (task.type == TaskType::kLastWord && task.key.empty()) task.key = "text";
  if (!task.file.starts_with('/') && !folder.empty()) task.file = base::JoinPath(folder, task.file);
  return task;
}

}  // namespace

std::string_view Name(TaskType type) {
  switch (type) {
    case TaskType::kPerplexity:
      return "perplexity";
    case TaskType::kLastWord:
      return "last_word";
    case TaskType::kMultipleChoice:
      break;
  }
  return "multiple_choice";
}

std::string_view Name(TaskRules rules) {
  switch (rules) {
    case TaskRules::kPlain:
      return "plain";
    case TaskRules::kWikitext:
      return "wikitext";
    case TaskRules::kHellaswag:
      return "hellaswag";
    case TaskRules::kLlmC:
      break;
  }
  return "llm.c";
}

StatusOr<std::vector<Task>> ParseTasks(std::string_view text, const std::string& name,
                                       const std::string& folder) {
  auto tree = spec::ParseTree(text);
  if (!tree.ok()) return base::Annotate(tree.status(), name);
  TreeNode* const list = tree->kind == TreeNode::Kind::kMap ? tree->Find("tasks") : nullptr;
  if (list == nullptr || tree->keys.size() != 1 || list->kind != TreeNode::Kind::kList ||
      list->items.empty())
    return base::InvalidArgument("{}: a task file is one list, `tasks:`, of one task or more",
                                 name);
  std::vector<Task> tasks;
  for (size_t i = 0; i < list->items.size(); ++i) {
    auto task = ReadTask(list->items[i], folder);
    if (!task.ok()) return base::Annotate(task.status(), fmt::format("{}: task {}", name, i + 1));
    if (std::ranges::any_of(tasks, [&](const Task& other) { return other.name == task->name; })) {
      return base::InvalidArgument("{}: task {}: the name {} is there already", name, i + 1,
                                   spec::Shown(task->name));
    }
    tasks.push_back(*std::move(task));
  }
  return tasks;
}

StatusOr<std::vector<Task>> ReadTasks(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path));
  return ParseTasks(text, path, std::filesystem::path(path).parent_path().string());
}

}  // namespace mt::decode
