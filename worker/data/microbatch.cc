// Sorts tokens on the host while earlier microbatches are computed, so that the device sums the
// embedding's gradient per segment, without atomics and in a fixed order.
#include "worker/data/microbatch.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/math.h"

namespace mt::data {

Microbatch EmptyMicrobatch(int64_t s, int64_t b) {
  Microbatch batch;
  batch.s = s;
  batch.b = b;
  const auto count = static_cast<size_t>(s * b);
  batch.tokens.assign(count, 0);
  batch.labels.assign(count, 0);
  batch.weights.assign(count, 0.0F);
  batch.samples.assign(static_cast<size_t>(b), -1);
  SortTokens(&batch);
  return batch;
}

void SortTokens(Microbatch* batch) {
  const size_t count = batch->tokens.size();
  // The key holds (id, index), so that an unstable sort orders equal ids by index.
  std::vector<uint64_t> keys(count);
  for (size_t i = 0; i < count; ++i) {
    CHECK_GE(batch->tokens[i], 0);
    keys[i] = (static_cast<uint64_t>(batch->tokens[i]) << 32) | i;
  }
  std::sort(keys.begin(), keys.end());
  batch->order.resize(count);
  batch->segment_token.clear();
  batch->segment_start.clear();
  for (size_t i = 0; i < count; ++i) {
    batch->order[i] = static_cast<int32_t>(keys[i] & 0xFFFFFFFFU);
    const int32_t token = static_cast<int32_t>(keys[i] >> 32);
    if (batch->segment_token.empty() || batch->segment_token.back() != token) {
      batch->segment_token.push_back(token);
      batch->segment_start.push_back(static_cast<int32_t>(i));
    }
  }
  batch->segment_start.push_back(base::CheckedCast<int32_t>(count));
  batch->segment_count = {base::CheckedCast<int32_t>(batch->num_segments())};
}

}  // namespace mt::data
