// Texts that a run writes with the weights that it trains, and what is asked of it: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "worker/decode/generator.h"
#include "worker/decode/sampler.h"

namespace megatrain::v1 {
class Generate;
}

namespace mt::train {

// What the model of a step goes on with behind a prompt of the job.
struct EvalSample {
  std::string prompt;
  std::string text;    // UTF-8: what is none stands as U+FFFD
  std::string finish;  // decode::Name(Finish), or "cut": there was more than kMostSampleBytes
};
inline constexpr size_t kMostSampleBytes = size_t{16} << 10;

// What somebody asks a running job for.
struct TextRequest {
  std::vector<std::string> prompts;  // none: the end of a document
  int64_t samples = 1;               // of each
  int64_t tokens = 64;               // at most, of each
  decode::SamplingConfig sampling;
  std::vector<std::string> stops;
};
// Of a completed job of kind generate.
TextRequest TextRequestOf(const megatrain::v1::Generate& generate);

// And what it gets, by prompt, then sample; both are numbers in the request.
struct DecodedText {
  int64_t prompt = 0;
  int64_t sample = 0;
  std::string text;    // as EvalSample's
  std::string finish;  // as EvalSample's, or "time": it took longer than it may (T6)
};

// The text of a continuation and how it ended, as samples have them.
struct KeptText {
  std::string text;
  std::string finish;
};
KeptText KeptTextOf(const decode::Continuation& one);

}  // namespace mt::train
