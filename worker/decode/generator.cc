// Waves of as many continuations as the model has sequences. The samples of a prompt share its
// computation: the first one's cache is copied.
#include "worker/decode/generator.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "common/base/check.h"
#include "worker/decode/text_stream.h"

namespace mt::decode {
namespace {

using kernels::kMaxFewRows;

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// One continuation while it is made.
struct Active {
  Continuation* out = nullptr;
  TextStream stream;
  int32_t sequence = 0;
  std::vector<int32_t> ids;  // prompt and continuation
  bool ended = false;
};

class Run {
 public:
  Run(DecodeModel* model, const data::Tokenizer& tokenizer, const GenerateRequest& request,
      const GenerateHooks& hooks)
      : model_(model),
        tokenizer_(tokenizer),
        request_(request),
        hooks_(hooks),
        vocab_(std::min(model->config().vocab, tokenizer.vocab_size())) {
    for (int32_t id = 0; id < vocab_; ++id)
      if (!tokenizer.Decode({&id, 1}).ok()) holes_.push_back(id);
  }

  StatusOr<GenerateReport> All() {
    for (int64_t p = 0; p < std::ssize(request_.prompts); ++p)
      for (int64_t s = 0; s < request_.samples; ++s)
        report_.continuations.push_back({.prompt = p, .sample = s});
    const auto wave = static_cast<size_t>(model_->sequences());
    for (size_t begin = 0; begin < report_.continuations.size(); begin += wave) {
      const size_t end = std::min(begin + wave, report_.continuations.size());
      RETURN_IF_ERROR(Wave(begin, end));
    }
    return std::move(report_);
  }

 private:
  bool Interrupted() const { return hooks_.interrupted && hooks_.interrupted(); }

  Status Wave(size_t begin, size_t end) {
    active_.clear();
    for (size_t i = begin; i < end && !Interrupted(); ++i) {
      Continuation* const out = &report_.continuations[i];
      const auto& prompt = request_.prompts[static_cast<size_t>(out->prompt)];
      active_.push_back({.out = out,
                         .stream = TextStream(&tokenizer_, prompt, request_.stops),
                         .sequence = static_cast<int32_t>(i - begin),
                         .ids = prompt});
      const auto start = std::chrono::steady_clock::now();
      RETURN_IF_ERROR(ReadPrompt());
      report_.prompt_seconds += SecondsSince(start);
    }
    const auto start = std::chrono::steady_clock::now();
    while (std::ranges::any_of(active_, [](const Active& a) { return !a.ended; })) {
      if (Interrupted()) break;
      RETURN_IF_ERROR(Step());
    }
    for (Active& one : active_)
      if (!one.ended) End(&one, Finish::kInterrupted);
    report_.decode_seconds += SecondsSince(start);
    return OkStatus();
  }

  // Computes the prompt of the newest continuation, or takes it from the one before, and chooses
  // its first token.
  Status ReadPrompt() {
    Active& one = active_.back();
    const bool shared =
        active_.size() > 1 && active_[active_.size() - 2].out->prompt == one.out->prompt;
    if (shared) {
      const Active& before = active_[active_.size() - 2];
      const auto length = static_cast<int64_t>(one.ids.size());
      model_->CopySequence(before.sequence, one.sequence, length);
      const size_t known = request_.log_probabilities ? one.ids.size() - 1 : 0;
      one.out->log_probabilities.assign(
          before.out->log_probabilities.begin(),
          before.out->log_probabilities.begin() + static_cast<int64_t>(known));
    } else {
      RETURN_IF_ERROR(ComputePrompt(&one));
    }
    return Choose(&one, prompt_logits_);
  }

  Status ComputePrompt(Active* one) {
    const auto length = std::ssize(one->ids);
    for (int64_t begin = 0; begin < length; begin += model_->max_rows()) {
      const int64_t count = std::min(model_->max_rows(), length - begin);
      rows_.clear();
      for (int64_t i = begin; i < begin + count; ++i) {
        rows_.push_back({.token = one->ids[static_cast<size_t>(i)],
                         .sequence = one->sequence,
                         .position = static_cast<int32_t>(i)});
      }
      model_->Forward(rows_);
      if (request_.log_probabilities) NoteProbabilities(one, begin, count);
      if (hooks_.on_piece) hooks_.on_piece();
    }
    const auto last = static_cast<int>((length - 1) % model_->max_rows());
    prompt_logits_ = RowOf(model_->Logits({&last, 1}), 0, model_->config().vocab);
    report_.prompt_tokens += length;
    return model_->status();
  }

  // Of the tokens behind `count` of the prompt's from `begin` on, which the model has just read.
  void NoteProbabilities(Active* one, int64_t begin, int64_t count) {
    for (int row = 0; row < count; ++row) {
      const auto next = static_cast<size_t>(begin + row + 1);
      if (next >= one->ids.size()) return;
      const auto logits = RowOf(model_->Logits({&row, 1}), 0, model_->config().vocab);
      one->out->log_probabilities.push_back(LogProbability(logits, one->ids[next]));
    }
  }

  // A token for every continuation that goes on, few rows at a time.
  Status Step() {
    std::vector<Active*> going;
    for (Active& one : active_)
      if (!one.ended) going.push_back(&one);
    for (size_t begin = 0; begin < going.size(); begin += kMaxFewRows) {
      const size_t end = std::min(begin + static_cast<size_t>(kMaxFewRows), going.size());
      rows_.clear();
      for (size_t i = begin; i < end; ++i) {
        rows_.push_back({.token = going[i]->ids.back(),
                         .sequence = going[i]->sequence,
                         .position = static_cast<int32_t>(going[i]->ids.size() - 1)});
      }
      const kernels::Tensor logits = model_->Step(rows_);
      RETURN_IF_ERROR(model_->status());
      for (size_t i = begin; i < end; ++i) {
        RETURN_IF_ERROR(Choose(
            going[i], RowOf(logits, static_cast<int64_t>(i - begin), model_->config().vocab)));
      }
    }
    return OkStatus();
  }

  // Chooses the token behind one->ids, and ends the continuation where it does.
  Status Choose(Active* one, std::vector<double> logits) {
    const auto draw = std::ssize(one->out->ids);
    if (draw >= request_.tokens) return Ended(one, Finish::kTokens);
    if (std::ranges::none_of(logits, [](double v) { return std::isfinite(v); })) {
      return base::FailedPrecondition(
          "the model's logits are not finite: the weights of this checkpoint are not numbers, or "
          "too large");
    }
    const std::vector<double> all = request_.log_probabilities ? logits : std::vector<double>();
    logits.resize(static_cast<size_t>(vocab_));
    PenalizeRepetition(request_.sampling.repetition_penalty, one->ids, &logits);
    for (const int32_t id : holes_)
      logits[static_cast<size_t>(id)] = -std::numeric_limits<double>::infinity();
    const int32_t token = Draw(Candidates(request_.sampling, logits),
                               UniformOf(request_.sampling.seed, one->out->sample, draw));
    if (request_.log_probabilities)
      one->out->log_probabilities.push_back(LogProbability(all, token));
    ++report_.decoded_tokens;
    one->ids.push_back(token);
    one->out->ids.push_back(token);
    if (token == tokenizer_.eod()) return Ended(one, Finish::kEod);
    ASSIGN_OR_RETURN(const std::string text, one->stream.Add(token));
    if (!text.empty()) Say(*one, text, /*ended=*/false);
    if (one->stream.stopped()) return Ended(one, Finish::kStop);
    if (draw + 1 >= request_.tokens) return Ended(one, Finish::kTokens);
    if (std::ssize(one->ids) > model_->config().seq) return Ended(one, Finish::kPositions);
    return OkStatus();
  }

  void End(Active* one, Finish finish) const {
    const std::string rest = one->stream.Finish();
    one->ended = true;
    one->out->finish = finish;
    one->out->text = one->stream.text();
    Say(*one, rest, /*ended=*/true);
  }

  Status Ended(Active* one, Finish finish) const {
    End(one, finish);
    return OkStatus();
  }

  void Say(const Active& one, std::string_view text, bool ended) const {
    if (hooks_.on_text) hooks_.on_text(one.out->prompt, one.out->sample, text, ended);
  }

  DecodeModel* const model_;
  const data::Tokenizer& tokenizer_;
  const GenerateRequest& request_;
  const GenerateHooks& hooks_;
  const int64_t vocab_;         // tokens that may be chosen are below it,
  std::vector<int32_t> holes_;  // and none of these ids, which have no token
  GenerateReport report_;
  std::vector<Active> active_;
  std::vector<Row> rows_;
  std::vector<double> prompt_logits_;  // behind the last prompt that was computed
};

}  // namespace

std::string_view Name(Finish finish) {
  switch (finish) {
    case Finish::kTokens:
      return "tokens";
    case Finish::kEod:
      return "eod";
    case Finish::kStop:
      return "stop";
    case Finish::kPositions:
      return "positions";
    case Finish::kInterrupted:
      break;
  }
  return "interrupted";
}

Status CheckPrompts(const GenerateRequest& request, int64_t limit, int64_t vocab) {
  for (size_t p = 0; p < request.prompts.size(); ++p) {
    const auto& ids = request.prompts[p];
    if (ids.empty()) return base::InvalidArgument("prompt {} has no tokens", p + 1);
    if (std::ssize(ids) > limit) {
      return base::InvalidArgument(
          "prompt {} has {} tokens, the model has {} positions (model.max_positions): shorten it",
          p + 1, ids.size(), limit);
    }
    for (const int32_t id : ids) {
      if (id < 0 || id >= vocab) {
        return base::InvalidArgument("prompt {} has token {}, outside the model's vocabulary of {}",
                                     p + 1, id, vocab);
      }
    }
  }
  return OkStatus();
}

StatusOr<GenerateReport> Generate(DecodeModel* model, const data::Tokenizer& tokenizer,
                                  const GenerateRequest& request, const GenerateHooks& hooks) {
  const Status prompts = CheckPrompts(request, model->config().seq, model->config().vocab);
  CHECK(prompts.ok()) << base::Message(prompts);
  return Run(model, tokenizer, request, hooks).All();
}

}  // namespace mt::decode
