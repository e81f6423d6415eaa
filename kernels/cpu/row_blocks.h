// Sums over rows that must not depend on the number of threads: the number of rows alone determines
// how they are cut into blocks, one thread sums each block, and the block sums are added in order.
#pragma once

#include <algorithm>

#include "common/base/math.h"
#include "kernels/core/tensor.h"
#include "kernels/cpu/loops/vector_loops.h"

namespace mt::kernels::cpu {

// `count` blocks of `rows` rows each; the last may be shorter.
struct RowBlocks {
  int64_t count = 0, rows = 0;
};

// At most 32 blocks of at least 16 rows.
inline RowBlocks SplitRows(int64_t rows) {
  constexpr int64_t kMaxRowBlocks = 32, kMinBlockRows = 16;
  const int64_t per_block = std::max(kMinBlockRows, base::CeilDiv(rows, kMaxRowBlocks));
  return {base::CeilDiv(rows, per_block), per_block};
}

// The partial sums of all blocks: `per_block` vectors of n elements for each block, block by block.
template <class T>
struct BlockSums {
  const T* data = nullptr;
  int64_t blocks = 0, per_block = 0;
};

// out [n] = or += the sum over blocks of vector `slot`; does nothing if out is absent.
template <class T>
void CombineBlocks(const BlockSums<T>& sums, int64_t slot, GradMode mode, const Tensor& out) {
  if (!out) return;
  const int64_t n = out.NumElements();
  ColumnSums(sums.data + slot * n,
             {.rows = sums.blocks, .stride = sums.per_block * n, .begin = 0, .end = n},
             mode == GradMode::kAdd, out.Data<T>());
}

}  // namespace mt::kernels::cpu
