// One rank's microbatch as the engine takes it. Legend: s sequence length, b samples, T = s b.
// Everything by token is laid out [s, b], sequence first, as the activations are: token t of sample
// i is element t b + i.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mt::data {

struct Microbatch {
  int64_t s = 0;
  int64_t b = 0;
  std::vector<int32_t> tokens;   // [s, b]
  std::vector<int32_t> labels;   // [s, b]
  std::vector<float> weights;    // [s, b]; 1 counts in the loss, 0 does not
  std::vector<int64_t> samples;  // [b] running sample numbers (dropout's key); -1 = padding sample
  double weight_sum = 0;         // of weights

  // For the embedding's gradient (kernels/ops/embedding.h, ScatterGrad): indices into tokens,
  // sorted by token id, ties in rising order; n segments of equal ids.
  std::vector<int32_t> order;          // [T]
  std::vector<int32_t> segment_token;  // [n] rising ids
  std::vector<int32_t> segment_start;  // [n + 1] into order; first 0, last T
  std::vector<int32_t> segment_count;  // [1]: n, where a device copies it from

  int64_t num_segments() const { return static_cast<int64_t>(segment_token.size()); }
};

// Fills order, segment_token and segment_start from tokens.
void SortTokens(Microbatch* batch);

}  // namespace mt::data
