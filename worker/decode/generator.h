// Continues prompts: feeds them to a DecodeModel, chooses tokens, and gives the text out as it
// comes. Several prompts and samples are computed side by side, as many as the model has sequences;
// what each becomes does not depend on the others.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/data/tokenizer.h"
#include "worker/decode/decode_model.h"
#include "worker/decode/sampler.h"

namespace mt::decode {

struct GenerateRequest {
  std::vector<std::vector<int32_t>> prompts;  // none is empty
  int64_t samples = 1;                        // of each prompt
  int64_t tokens = 64;                        // at most, of each
  SamplingConfig sampling;
  std::vector<std::string> stops;  // none is empty
  bool log_probabilities = false;
};

enum class Finish : uint8_t {
  kTokens,       // as many as were asked for
  kEod,          // the end-of-document token, which the text does not have
  kStop,         // a stop string
  kPositions,    // the model has no more
  kInterrupted,  // by the caller
};
// "tokens", "eod", "stop", "positions" or "interrupted".
std::string_view Name(Finish finish);

struct Continuation {
  int64_t prompt = 0;  // number in the request
  int64_t sample = 0;
  std::vector<int32_t> ids;  // an ending end-of-document token included
  std::string text;          // without it, and without a stop string
  Finish finish = Finish::kInterrupted;
  // Natural logarithms by the model alone, before penalty, temperature, top-k and top-p: of the
  // prompt's tokens but the first, then of `ids`. With request.log_probabilities.
  std::vector<double> log_probabilities;
};

struct GenerateReport {
  std::vector<Continuation> continuations;  // by prompt, then sample
  double prompt_seconds = 0, decode_seconds = 0;
  int64_t prompt_tokens = 0;   // computed; samples of one prompt share it
  int64_t decoded_tokens = 0;  // chosen
};

// Calls on the caller's thread; may be empty.
struct GenerateHooks {
  // Text of a continuation that is final; `ended` with its last piece, which may be empty.
  std::function<void(int64_t prompt, int64_t sample, std::string_view text, bool ended)> on_text;
  std::function<bool()> interrupted;  // asked before each prompt and each step
  // A piece of a prompt, at most DecodeModel::max_rows tokens, is being computed: a prompt may take
  // long, and those who watch see that it goes on.
  std::function<void()> on_piece;
};

// kInvalidArgument, naming the prompt: it is longer than the model's positions, or has a token
// outside the vocabulary. `limit` is the model's number of positions.
Status CheckPrompts(const GenerateRequest& request, int64_t limit, int64_t vocab);

// The model has its weights, and at least as many positions as the longest prompt (CHECK). Tokens
// that the tokenizer does not have are never chosen. Where ranks decode together all of them call
// this with the same request, and each obtains the same texts; `interrupted` must then answer alike
// on all, and all hooks are called as often on each. Errors: the tokenizer's, and the model's
// status().
StatusOr<GenerateReport> Generate(DecodeModel* model, const data::Tokenizer& tokenizer,
                                  const GenerateRequest& request, const GenerateHooks& hooks = {});

}  // namespace mt::decode
