// How likely a model finds given tokens: the log probability of each behind those before it. Sums
// are fp64, whatever the model computes in.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "worker/decode/decode_model.h"

namespace mt::decode {

struct TokenScore {
  double log_probability = 0;  // natural, over the model's whole vocabulary
  bool greedy = false;         // no token is likelier, and of equal ones none is lower
};

// Used by one thread. Of equal calls in the same order results are equal to the bit; what tokens
// two calls in a row have in common at their beginning is computed once, which may change last
// bits.
class Scorer {
 public:
  // Rows of the logits that the model should be made with: a matrix product's worth.
  static constexpr int64_t kLogitRows = 32;

  // The model has its weights, and must outlive this.
  explicit Scorer(DecodeModel* model) : model_(model) {}

  // Of the last `scored` of `ids`, each behind all before it: 1 <= scored < ids.size(), at most one
  // more than the model's positions, all within its vocabulary (CHECK). kFailedPrecondition: the
  // model's logits are no numbers.
  StatusOr<std::vector<TokenScore>> Score(std::span<const int32_t> ids, int64_t scored);

 private:
  // Appends the scores of the tokens behind rows [first, count) of the last Forward, the first of
  // which stands at `begin`.
  Status ReadRows(std::span<const int32_t> ids, int64_t begin, int64_t first, int64_t count,
                  std::vector<TokenScore>* out);

  DecodeModel* const model_;
  std::vector<int32_t> known_;  // of which the cache has keys and values
  std::vector<Row> rows_;
};

}  // namespace mt::decode
