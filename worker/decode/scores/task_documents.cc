// Every line counts: one that cannot be read ends the whole, as a score without it would be of
// another set.
#include "worker/decode/scores/task_documents.h"

#include <charconv>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/base/plain_text.h"
#include "worker/data/tokenizer/unicode.h"
#include "worker/decode/scores/task_text.h"

namespace mt::decode {
namespace {

using nlohmann::json;

StatusOr<std::string> TextUnder(const json& line, const std::string& key) {
  const auto found = line.find(key);
  if (found == line.end()) return base::InvalidArgument("has no \"{}\"", base::CleanLine(key));
  if (!found->is_string()) return base::InvalidArgument("\"{}\" is no text", base::CleanLine(key));
  return found->get<std::string>();
}

StatusOr<std::vector<std::string>> TextsUnder(const json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end()) return base::InvalidArgument("has no \"{}\"", key);
  std::vector<std::string> texts;
  if (found->is_array()) {
    for (const json& one : *found)
      if (one.is_string()) texts.push_back(one.get<std::string>());
  }
  if (texts.size() < 2 || texts.size() != found->size())
    return base::InvalidArgument("\"{}\" is no list of two texts or more", key);
  return texts;
}

// The number of the right choice: as a number, or written in a text.
StatusOr<int64_t> AnswerOf(const json& line, int64_t choices) {
  const auto found = line.find("label");
  if (found == line.end()) return base::InvalidArgument("has no \"label\"");
  std::optional<int64_t> answer;
  if (found->is_number_unsigned()) {
    answer = found->get<int64_t>();
  } else if (found->is_string()) {
    const auto& word = found->get_ref<const std::string&>();
    int64_t value = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error == std::errc() && end == word.data() + word.size()) answer = value;
  }
  if (answer && *answer >= 0 && *answer < choices) return *answer;
  return base::InvalidArgument("\"label\" is none of 0 to {}: the right answer must be known",
                               choices - 1);
}

StatusOr<Question> LastWordOf(const json& line, const std::string& key) {
  ASSIGN_OR_RETURN(const std::string text, TextUnder(line, key));
  const size_t blank = text.rfind(' ');
  const std::string word = blank == std::string::npos ? text : text.substr(blank + 1);
  if (word.empty())
    return base::InvalidArgument("\"{}\" has no word behind its last blank", base::CleanLine(key));
  Question question;
  if (blank != std::string::npos) question.context = text.substr(0, blank);
  question.choices.push_back({.text = " " + word});
  return question;
}

// The fields of a question by the task's rules, as they are scored.
Status ReadQuestion(const json& line, TaskRules rules, std::string* context,
                    std::vector<std::string>* choices) {
  if (rules == TaskRules::kPlain) {
    ASSIGN_OR_RETURN(*context, TextUnder(line, "context"));
    ASSIGN_OR_RETURN(*choices, TextsUnder(line, "choices"));
    return OkStatus();
  }
  ASSIGN_OR_RETURN(*choices, TextsUnder(line, "endings"));
  if (rules == TaskRules::kLlmC) {
    ASSIGN_OR_RETURN(*context, TextUnder(line, "ctx"));
    return OkStatus();
  }
  ASSIGN_OR_RETURN(const std::string activity, TextUnder(line, "activity_label"));
  ASSIGN_OR_RETURN(const std::string first, TextUnder(line, "ctx_a"));
  ASSIGN_OR_RETURN(const std::string second, TextUnder(line, "ctx_b"));
  ASSIGN_OR_RETURN(const std::string capitalized, Capitalized(second));
  *context = CleanHellaswag(activity + ": " + first + " " + capitalized);
  for (std::string& choice : *choices) choice = CleanHellaswag(choice);
  return OkStatus();
}

StatusOr<Question> QuestionOf(const json& line, TaskRules rules) {
  Question question;
  std::vector<std::string> choices;
  RETURN_IF_ERROR(ReadQuestion(line, rules, &question.context, &choices));
  for (const std::string& choice : choices) {
    if (choice.empty()) return base::InvalidArgument("one of the choices is empty");
    question.choices.push_back(
        {.text = " " + choice, .characters = CountCharacters(choice), .bytes = std::ssize(choice)});
  }
  ASSIGN_OR_RETURN(question.answer, AnswerOf(line, std::ssize(choices)));
  return question;
}

Status AddLine(const Task& task, const json& line, int64_t number, TaskDocuments* out) {
  if (!line.is_object()) return base::InvalidArgument("is no JSON object");
  if (task.type == TaskType::kPerplexity) {
    ASSIGN_OR_RETURN(std::string text, TextUnder(line, task.key));
    const int64_t words = CountWords(text), bytes = std::ssize(text);
    if (task.rules == TaskRules::kWikitext) text = DetokenizedWikitext(text);
    out->texts.push_back({.text = std::move(text), .words = words, .bytes = bytes});
    return OkStatus();
  }
  ASSIGN_OR_RETURN(Question question, task.type == TaskType::kLastWord
                                          ? LastWordOf(line, task.key)
                                          : QuestionOf(line, task.rules));
  question.line = number;
  out->questions.push_back(std::move(question));
  return OkStatus();
}

Status AddLines(const Task& task, std::string_view text, TaskDocuments* out) {
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (task.limit > 0 && out->size() >= task.limit) return OkStatus();
    const json parsed = json::parse(line, nullptr, /*allow_exceptions=*/false);
    const Status added = parsed.is_discarded() ? base::InvalidArgument("is no JSON")
                                               : AddLine(task, parsed, number, out);
    if (!added.ok()) return base::Annotate(added, fmt::format("{}: line {}", task.file, number));
  }
  return OkStatus();
}

void AddPages(const Task& task, std::string_view text, TaskDocuments* out) {
  for (const std::string& page : WikitextPages(text)) {
    if (task.limit > 0 && out->size() >= task.limit) return;
    out->texts.push_back(
        {.text = DetokenizedWikitext(page), .words = CountWords(page), .bytes = std::ssize(page)});
  }
}

}  // namespace

StatusOr<TaskDocuments> ParseDocuments(const Task& task, std::string_view text) {
  const size_t valid = data::ValidUtf8Prefix(text);
  if (valid < text.size())
    return base::InvalidArgument("{}: no UTF-8 at offset {}", task.file, valid);
  TaskDocuments out;
  if (task.type != TaskType::kPerplexity || !task.key.empty()) {
    RETURN_IF_ERROR(AddLines(task, text, &out));
  } else if (task.rules == TaskRules::kWikitext) {
    AddPages(task, text, &out);
  } else if (!text.empty()) {
    out.texts.push_back(
        {.text = std::string(text), .words = CountWords(text), .bytes = std::ssize(text)});
  }
  if (out.size() == 0) return base::InvalidArgument("{} has no document", task.file);
  return out;
}

StatusOr<TaskDocuments> ReadDocuments(const Task& task) {
  ASSIGN_OR_RETURN(const std::string text, base::ReadFile(task.file));
  return ParseDocuments(task, text);
}

}  // namespace mt::decode
