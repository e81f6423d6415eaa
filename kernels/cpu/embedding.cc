// Embedding lookup and its gradient. The gradient is split over columns, so each thread adds whole
// segments of its own columns in order.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/loops/vector_loops.h"

namespace mt::kernels::cpu {
namespace {

// Adds columns [begin, end) of dtable and dposition: each thread has columns of its own, so every
// sum runs in ascending row order, whatever the number of threads.
template <class S>
void ScatterColumns(const EmbeddingScatterArgs& a, int64_t begin, int64_t end) {
  const int64_t h = a.dy.shape[1];
  const int64_t width = end - begin;
  using T = Compute<S>;
  const S* dy = a.dy.Data<S>() + begin;
  const int32_t* order = a.order.Data<int32_t>();
  const int32_t* token = a.segment_token.Data<int32_t>();
  const int32_t* start = a.segment_start.Data<int32_t>();
  T* dtable = a.dtable.Data<T>() + begin;
  const int64_t segments = a.count ? *a.count.Data<int32_t>() : a.num_segments;
  for (int64_t segment = 0; segment < segments; ++segment) {
    const int64_t row = token[segment] - a.first_row;
    if (row < 0 || row >= a.dtable.shape[0]) continue;
    for (int64_t i = start[segment]; i < start[segment + 1]; ++i) {
      AddRange(dtable + row * h, dy + order[i] * h, width);
    }
  }
  if (!a.dposition) return;
  const int32_t* positions = a.positions.Data<int32_t>();
  T* dposition = a.dposition.Data<T>() + begin;
  for (int64_t row = 0; row < a.dy.shape[0]; ++row) {
    AddRange(dposition + positions[row / a.batch] * h, dy + row * h, width);
  }
}

}  // namespace

void CpuEmbedding::Gather(Stream& /*stream*/, const EmbeddingGatherArgs& a) const {
  const int64_t h = a.table.shape[1];
  CHECK(a.table.dtype == a.out.dtype && a.out.shape[1] == h &&
        a.out.shape[0] == a.tokens.NumElements());
  const int32_t* tokens = a.tokens.Data<int32_t>();
  const size_t row_bytes = static_cast<size_t>(h * SizeOf(a.table.dtype));
  pool_->ForRanges(a.out.shape[0], RowGrain(h), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = tokens[i] - a.first_row;
      char* to = static_cast<char*>(a.out.data) + static_cast<size_t>(i) * row_bytes;
      if (row < 0 || row >= a.table.shape[0]) {
        std::memset(to, 0, row_bytes);
      } else {
        const char* from = static_cast<const char*>(a.table.data);
        std::memcpy(to, from + static_cast<size_t>(row) * row_bytes, row_bytes);
      }
    }
  });
}

void CpuEmbedding::ScatterGrad(Stream& /*stream*/, const EmbeddingScatterArgs& a) const {
  const int64_t h = a.dy.shape[1];
  CHECK_EQ(a.dtable.shape[1], h);
  CHECK_EQ(a.order.NumElements(), a.dy.shape[0]);
  if (a.count) CHECK_LE(*a.count.Data<int32_t>(), a.num_segments);
  if (a.dposition) CHECK(a.positions.NumElements() * a.batch == a.dy.shape[0]);
  const int64_t grain = std::max<int64_t>(16, kElementGrain / std::max<int64_t>(1, a.dy.shape[0]));
  ForFloatType(a.dy.dtype, "ScatterGrad", [&](auto zero) {
    pool_->ForRanges(h, grain, [&](int64_t begin, int64_t end) {
      ScatterColumns<decltype(zero)>(a, begin, end);
    });
  });
}

}  // namespace mt::kernels::cpu
