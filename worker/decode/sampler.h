// Choosing the next token from logits: the largest, or drawn after the repetition penalty (Keskar
// et al. 2019, §4.1), temperature, top-k (Fan et al. 2018) and top-p (Holtzman et al. 2020), in
// this order and in fp64. Pure functions; README.md ("Sampling") defines each number.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "kernels/core/tensor.h"

namespace mt::decode {

struct SamplingConfig {
  double temperature = 0;         // 0: greedy
  int64_t top_k = 0;              // 0: all
  double top_p = 1;               // 1: all
  double repetition_penalty = 1;  // 1: none
  int64_t seed = 0;
  bool greedy() const { return temperature == 0; }
};

// kInvalidArgument: a number out of range, or one that greedy choice would ignore.
Status CheckSampling(const SamplingConfig& config);

// A uniform number in [0, 1) of the stream "generate": draw `draw` of a sample. It depends on
// nothing else, so a prompt's text is the same whatever is generated beside it.
double UniformOf(int64_t seed, int64_t sample, int64_t draw);

// The logits of one row, a [.., V] tensor's first `vocab` elements of row `row`, as fp64.
std::vector<double> RowOf(const kernels::Tensor& logits, int64_t row, int64_t vocab);

// Logits of tokens in `seen` are divided by the penalty where positive, else multiplied with it;
// each once.
void PenalizeRepetition(double penalty, std::span<const int32_t> seen, std::vector<double>* logits);

// A token that may be drawn, and its probability.
struct Candidate {
  int32_t token = 0;
  double probability = 0;
};
// What may be drawn, the likeliest first, of equal ones the lower number first. Probabilities sum
// to 1. Without temperature: the largest alone. Logits that are not finite are the lowest.
std::vector<Candidate> Candidates(const SamplingConfig& config, std::span<const double> logits);

// The first candidate at which the sum of probabilities exceeds `uniform`.
int32_t Draw(std::span<const Candidate> candidates, double uniform);

// log softmax(logits)[token].
double LogProbability(std::span<const double> logits, int32_t token);

}  // namespace mt::decode
