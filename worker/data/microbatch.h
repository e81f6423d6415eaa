// One rank's microbatch on the host. Legend: s sequence length, b samples, T = s b. Everything per
// token is laid out [s, b], sequence first, as the activations are: token t of sample i is element
// t b + i.
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
  std::vector<int64_t> samples;  // [b] sample numbers, which key dropout; -1: padding
  double weight_sum = 0;         // sum of weights

  // For the gradient of the embedding (kernels/ops/embedding.h, ScatterGrad): indices of the tokens
  // sorted by token id, ties in ascending order, and the n segments of equal ids.
  std::vector<int32_t> order;          // [T]
  std::vector<int32_t> segment_token;  // [n] ascending ids
  std::vector<int32_t> segment_start;  // [n + 1] indices into order; first 0, last T
  std::vector<int32_t> segment_count;  // [1] n, as data that a device can copy

  int64_t num_segments() const { return static_cast<int64_t>(segment_token.size()); }
};

// What of a microbatch a stage of the pipeline uses: inputs are tokens and their order, labels go
// with weights. All stages use the sample numbers.
struct MicrobatchParts {
  bool inputs = true;
  bool labels = true;
  bool any() const { return inputs || labels; }
};

// Tokens and labels of id 0 and weight 0, and no samples: what stands where nothing was read.
Microbatch EmptyMicrobatch(int64_t s, int64_t b);

// Computes order, segment_token, segment_start and segment_count from tokens. CHECKs that no id is
// negative.
void SortTokens(Microbatch* batch);

}  // namespace mt::data
