// One rank's microbatch on the host. Legend: s sequence length, b samples, T = s b. Everything per
// token is laid out [s, b], sequence first, as the activations are: token t of sample i is element
// t b + i.
#pragma once

#include <cstdint>
#include <optional>
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
  // Bytes of text that the labels stand for, times their weights; NaN: not known.
  double label_bytes = 0;

  // For the gradient of the embedding (kernels/ops/embedding.h, ScatterGrad): indices of the tokens
  // sorted by token id, ties in ascending order, and the n segments of equal ids.
  std::vector<int32_t> order;          // [T]
  std::vector<int32_t> segment_token;  // [n] ascending ids
  std::vector<int32_t> segment_start;  // [n + 1] indices into order; first 0, last T
  std::vector<int32_t> segment_count;  // [1] n, as data that a device can copy

  // Where positions restart at documents (data.reset_positions); else all empty.
  std::vector<int32_t> positions;  // [s, b] of each token, in [0, s)
  // For the gradient of learned positions: as the four above, of the m positions that occur.
  std::vector<int32_t> position_order;  // [T]
  std::vector<int32_t> position_value;  // [m] ascending positions
  std::vector<int32_t> position_start;  // [m + 1] indices into position_order
  std::vector<int32_t> position_count;  // [1] m

  int64_t num_segments() const { return static_cast<int64_t>(segment_token.size()); }
};

// What of a microbatch a stage of the pipeline uses: inputs are tokens and their order, labels go
// with weights. All stages use the sample numbers. Positions are those that restart at documents,
// which every stage that rotates by them finds in the inputs; their order goes with them.
struct MicrobatchParts {
  bool inputs = true;
  bool labels = true;
  bool positions = false;
  bool position_order = false;
  bool any() const { return inputs || labels || positions; }
};

// Tokens and labels of id 0 and weight 0, and no samples: what stands where nothing was read. With
// the part `positions` they count through each sample.
Microbatch EmptyMicrobatch(int64_t s, int64_t b, const MicrobatchParts& parts = {});

// Sets the positions [s] of sample i: 0 at its begin and behind each input `restart_behind`, one
// more at each token (megatron/core/datasets/gpt_dataset.py, _get_ltor_masks_and_position_ids).
// inputs [s]. CHECKs that the batch has positions.
void PlacePositions(std::span<const int32_t> inputs, std::optional<int32_t> restart_behind,
                    int64_t i, Microbatch* batch);
// Computes position_order, position_value, position_start and position_count from positions. CHECKs
// that each is in [0, s).
void SortPositions(Microbatch* batch);

// Computes order, segment_token, segment_start and segment_count from tokens. CHECKs that no id is
// negative.
void SortTokens(Microbatch* batch);

}  // namespace mt::data
