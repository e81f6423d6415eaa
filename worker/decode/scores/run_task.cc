// One document after the other: a model of this size is bound by its products, not by their number.
#include "worker/decode/scores/run_task.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "worker/decode/scores/score_window.h"
#include "worker/decode/scores/scorer.h"

namespace mt::decode {
namespace {

struct ChoiceScore {
  double log_likelihood = 0;
  int64_t tokens = 0;
  bool greedy = true;  // every token is
};

class TaskRun {
 public:
  explicit TaskRun(const RunTaskArgs& args) : args_(args), scorer_(args.model) {}

  StatusOr<TaskResult> Texts() {
    double log_likelihood = 0;
    int64_t words = 0, bytes = 0;
    for (const ScoredText& text : args_.documents->texts) {
      auto sum = Text(text);
      if (!sum.ok()) return base::Annotate(sum.status(), args_.task->file);
      log_likelihood += *sum;
      words += text.words;
      bytes += text.bytes;
      Progress();
    }
    // One ratio over all texts.
    const auto per = [&](int64_t count) { return -log_likelihood / static_cast<double>(count); };
    result_.scores = {{"token_perplexity", std::exp(per(result_.tokens))},
                      {"word_perplexity", std::exp(per(words))},
                      {"byte_perplexity", std::exp(per(bytes))},
                      {"bits_per_byte", per(bytes) / std::log(2.0)},
                      {"log_likelihood", log_likelihood},
                      {"words", static_cast<double>(words)},
                      {"bytes", static_cast<double>(bytes)}};
    return std::move(result_);
  }

  StatusOr<TaskResult> LastWords() {
    double log_likelihood = 0;
    int64_t right = 0;
    for (const Question& question : args_.documents->questions) {
      ASSIGN_OR_RETURN(const ChoiceScore score, Choice(question, 0));
      log_likelihood += score.log_likelihood;
      right += score.greedy ? 1 : 0;
      Progress();
    }
    AddShare("accuracy", right);
    AddError();
    // Of a document, whose word may be several tokens.
    result_.scores.emplace_back("perplexity",
                                std::exp(-log_likelihood / static_cast<double>(result_.documents)));
    return std::move(result_);
  }

  StatusOr<TaskResult> Questions() {
    int64_t right = 0, by_character = 0, by_byte = 0, by_token = 0;
    for (const Question& question : args_.documents->questions) {
      std::vector<double> sum, character, byte, token;
      for (size_t i = 0; i < question.choices.size(); ++i) {
        ASSIGN_OR_RETURN(const ChoiceScore score, Choice(question, i));
        const Question::Choice& choice = question.choices[i];
        sum.push_back(score.log_likelihood);
        character.push_back(score.log_likelihood / static_cast<double>(choice.characters));
        byte.push_back(score.log_likelihood / static_cast<double>(choice.bytes));
        token.push_back(score.log_likelihood / static_cast<double>(score.tokens));
      }
      const auto is_right = [&](const std::vector<double>& of) {
        return std::max_element(of.begin(), of.end()) - of.begin() == question.answer ? 1 : 0;
      };
      right += is_right(sum);
      by_character += is_right(character);
      by_byte += is_right(byte);
      by_token += is_right(token);
      Progress();
    }
    AddShare("accuracy", right);
    AddError();
    if (args_.task->rules == TaskRules::kLlmC) {
      AddShare("accuracy_per_token", by_token);
    } else {
      AddShare("accuracy_per_character", by_character);
      AddShare("accuracy_per_byte", by_byte);
    }
    return std::move(result_);
  }

 private:
  // The log likelihood of a text, behind the end of a document.
  StatusOr<double> Text(const ScoredText& text) {
    if (args_.tokenizer->eod() == data::kNoEod) {
      return base::InvalidArgument(
          "the {} tokenizer has no end-of-document token, from which the first token of a text is "
          "predicted",
          args_.tokenizer->name());
    }
    std::vector<int32_t> ids = {args_.tokenizer->eod()};
    RETURN_IF_ERROR(args_.tokenizer->Encode(text.text, &ids));
    if (ids.size() == 1) return base::InvalidArgument("a text has no token");
    RETURN_IF_ERROR(CheckIds(ids));
    double sum = 0;
    for (const ScoreWindow& w :
         RollingWindows(std::ssize(ids), args_.task->window, args_.task->stride)) {
      if (Interrupted()) return base::Error(absl::StatusCode::kCancelled, "interrupted");
      ASSIGN_OR_RETURN(const auto scores,
                       scorer_.Score(std::span(ids).subspan(static_cast<size_t>(w.begin),
                                                            static_cast<size_t>(w.end - w.begin)),
                                     w.scored));
      for (const TokenScore& score : scores) sum += score.log_probability;
    }
    result_.tokens += std::ssize(ids) - 1;
    return sum;
  }

  StatusOr<ChoiceScore> Choice(const Question& question, size_t number) {
    auto score = Score(question, number);
    if (score.ok() || !absl::IsInvalidArgument(score.status())) return score;
    return base::Annotate(score.status(),
                          fmt::format("{}: line {}", args_.task->file, question.line));
  }

  StatusOr<ChoiceScore> Score(const Question& question, size_t number) {
    if (Interrupted()) return base::Error(absl::StatusCode::kCancelled, "interrupted");
    ASSIGN_OR_RETURN(const ScoredPair pair,
                     EncodePair({.tokenizer = args_.tokenizer,
                                 .context = question.context,
                                 .continuation = question.choices[number].text,
                                 .apart = args_.task->rules == TaskRules::kLlmC,
                                 .window = args_.task->window}));
    RETURN_IF_ERROR(CheckIds(pair.ids));
    ASSIGN_OR_RETURN(const auto scores, scorer_.Score(pair.ids, pair.scored));
    ChoiceScore out{.tokens = pair.scored};
    for (const TokenScore& score : scores) {
      out.log_likelihood += score.log_probability;
      out.greedy = out.greedy && score.greedy;
    }
    result_.tokens += pair.scored;
    result_.cut += pair.cut ? 1 : 0;
    return out;
  }

  Status CheckIds(const std::vector<int32_t>& ids) const {
    const int64_t vocab = args_.model->config().vocab;
    for (const int32_t id : ids) {
      if (id >= 0 && id < vocab) continue;
      return base::InvalidArgument("token {} is outside the model's vocabulary of {}", id, vocab);
    }
    return OkStatus();
  }

  bool Interrupted() const { return args_.hooks.interrupted && args_.hooks.interrupted(); }

  void Progress() {
    ++result_.documents;
    if (args_.hooks.on_progress)
      args_.hooks.on_progress(result_.documents, args_.documents->size());
  }

  void AddShare(const char* name, int64_t count) {
    result_.scores.emplace_back(
        name, static_cast<double>(count) / static_cast<double>(result_.documents));
  }

  // The standard error of the share that was added last, where it has one.
  void AddError() {
    const double share = result_.scores.back().second;
    const auto others = static_cast<double>(result_.documents - 1);
    if (others > 0)
      result_.scores.emplace_back("accuracy_error", std::sqrt(share * (1 - share) / others));
  }

  const RunTaskArgs& args_;
  Scorer scorer_;
  TaskResult result_;
};

}  // namespace

StatusOr<Task> WithWindows(Task task, int64_t positions) {
  if (task.window > positions) {
    return base::InvalidArgument("task {}: window {} is beyond the {} positions of the model",
                                 task.name, task.window, positions);
  }
  if (task.window == 0) task.window = positions;
  if (task.stride > task.window) {
    return base::InvalidArgument(
        "task {}: stride {} is beyond the window of {}: tokens between would not be scored",
        task.name, task.stride, task.window);
  }
  if (task.stride == 0) task.stride = task.window;
  return task;
}

StatusOr<TaskResult> RunTask(const RunTaskArgs& args) {
  TaskRun run(args);
  switch (args.task->type) {
    case TaskType::kPerplexity:
      return run.Texts();
    case TaskType::kLastWord:
      return run.LastWords();
    case TaskType::kMultipleChoice:
      break;
  }
  return run.Questions();
}

}  // namespace mt::decode
