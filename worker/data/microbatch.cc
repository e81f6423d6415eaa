// Sorts tokens and positions on the host while earlier microbatches are computed, so that the
// device sums the embeddings' gradients per segment, without atomics and in a fixed order.
#include "worker/data/microbatch.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/math.h"

namespace mt::data {

Microbatch EmptyMicrobatch(int64_t s, int64_t b, const MicrobatchParts& parts) {
  CHECK(parts.positions || !parts.position_order) << "an order of no positions";
  Microbatch batch;
  batch.s = s;
  batch.b = b;
  const auto count = static_cast<size_t>(s * b);
  batch.tokens.assign(count, 0);
  batch.labels.assign(count, 0);
  batch.weights.assign(count, 0.0F);
  batch.samples.assign(static_cast<size_t>(b), -1);
  SortTokens(&batch);
  if (!parts.positions) return batch;
  batch.positions.resize(count);
  for (size_t row = 0; row < count; ++row)
    batch.positions[row] = static_cast<int32_t>(row / static_cast<size_t>(b));
  if (parts.position_order) SortPositions(&batch);
  return batch;
}

void PlacePositions(std::span<const int32_t> inputs, std::optional<int32_t> restart_behind,
                    int64_t i, Microbatch* batch) {
  CHECK_EQ(static_cast<int64_t>(inputs.size()), batch->s);
  CHECK_EQ(static_cast<int64_t>(batch->positions.size()), batch->s * batch->b);
  CHECK(i >= 0 && i < batch->b) << "sample " << i;
  int32_t position = 0;
  auto row = static_cast<size_t>(i);
  for (const int32_t id : inputs) {
    batch->positions[row] = position;
    position = id == restart_behind ? 0 : position + 1;
    row += static_cast<size_t>(batch->b);
  }
}

// Positions are small numbers, so they are counted rather than compared.
void SortPositions(Microbatch* batch) {
  const size_t count = batch->positions.size();
  std::vector<int32_t> next(static_cast<size_t>(batch->s), 0);  // place of a position's next row
  for (const int32_t position : batch->positions) {
    CHECK(position >= 0 && position < batch->s) << "position " << position;
    ++next[static_cast<size_t>(position)];
  }
  batch->position_value.clear();
  batch->position_start.clear();
  int32_t start = 0;
  for (size_t position = 0; position < next.size(); ++position) {
    const int32_t rows = std::exchange(next[position], start);
    if (rows == 0) continue;
    batch->position_value.push_back(static_cast<int32_t>(position));
    batch->position_start.push_back(start);
    start += rows;
  }
  batch->position_start.push_back(start);
  batch->position_count = {base::CheckedCast<int32_t>(std::ssize(batch->position_value))};
  batch->position_order.resize(count);
  for (size_t row = 0; row < count; ++row) {
    int32_t& place = next[static_cast<size_t>(batch->positions[row])];
    batch->position_order[static_cast<size_t>(place++)] = static_cast<int32_t>(row);
  }
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
