// Splits a large GEMM into blocks of C, each one call of single-threaded OpenBLAS. The header is
// Debian's name for OpenBLAS's own cblas.h, whichever BLAS the plain name refers to.
#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <limits>

#include <cblas-openblas.h>

#include "common/base/math.h"
#include "kernels/cpu/cpu_backend.h"

namespace mt::kernels::cpu {
namespace {

// Blocks start at multiples of this number of rows and columns: OpenBLAS's kernels work on tiles of
// 4 to 48.
constexpr int64_t kBlockUnit = 48;
// Multiply-adds that justify waking one more thread.
constexpr int64_t kMinWorkPerThread = int64_t{1} << 18;

CBLAS_TRANSPOSE Op(bool transpose) { return transpose ? CblasTrans : CblasNoTrans; }

blasint Int(int64_t value) { return base::CheckedCast<blasint>(value); }

struct Grid {
  int64_t rows = 1, columns = 1;
};

// Returns the grid of at most `threads` blocks with the least memory traffic: each block reads its
// rows of A and its columns of B.
Grid ChooseGrid(int64_t m, int64_t n, int64_t threads) {
  Grid best;
  double best_cost = std::numeric_limits<double>::infinity();
  for (int64_t rows = 1; rows <= threads; ++rows) {
    const int64_t columns = threads / rows;
    const int64_t block_m = base::RoundUp(base::CeilDiv(m, rows), kBlockUnit);
    const int64_t block_n = base::RoundUp(base::CeilDiv(n, columns), kBlockUnit);
    // The largest block determines the time; the traffic of its edges breaks ties.
    const double cost = static_cast<double>(block_m) * static_cast<double>(block_n) +
                        static_cast<double>(block_m + block_n);
    if (cost < best_cost) {
      best_cost = cost;
      best = {rows, columns};
    }
  }
  return best;
}

// Returns the start of part `part` of `parts` in [0, size), a multiple of kBlockUnit.
int64_t PartStart(int64_t size, int64_t part, int64_t parts) {
  const int64_t units = base::CeilDiv(size, kBlockUnit);
  return std::min(size, units * part / parts * kBlockUnit);
}

}  // namespace

template <>
void Gemm<float>(const GemmArgs<float>& g) {
  cblas_sgemm(CblasRowMajor, Op(g.transpose_a), Op(g.transpose_b), Int(g.m), Int(g.n), Int(g.k),
              g.alpha, g.a, Int(g.lda), g.b, Int(g.ldb), g.beta, g.c, Int(g.ldc));
}

template <>
void Gemm<double>(const GemmArgs<double>& g) {
  cblas_dgemm(CblasRowMajor, Op(g.transpose_a), Op(g.transpose_b), Int(g.m), Int(g.n), Int(g.k),
              g.alpha, g.a, Int(g.lda), g.b, Int(g.ldb), g.beta, g.c, Int(g.ldc));
}

template <class T>
void ParallelGemm(ThreadPool& pool, const GemmArgs<T>& g) {
  if (g.m == 0 || g.n == 0) return;
  const int64_t threads =
      std::clamp<int64_t>(g.m * g.n * g.k / kMinWorkPerThread, 1, pool.num_threads());
  const Grid grid = ChooseGrid(g.m, g.n, threads);
  pool.ForRanges(grid.rows * grid.columns, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t row = PartStart(g.m, block / grid.columns, grid.rows);
      const int64_t row_end = PartStart(g.m, block / grid.columns + 1, grid.rows);
      const int64_t column = PartStart(g.n, block % grid.columns, grid.columns);
      const int64_t column_end = PartStart(g.n, block % grid.columns + 1, grid.columns);
      if (row == row_end || column == column_end) continue;
      GemmArgs<T> part = g;
      part.m = row_end - row;
      part.n = column_end - column;
      part.a += row * (g.transpose_a ? 1 : g.lda);
      part.b += column * (g.transpose_b ? g.ldb : 1);
      part.c += row * g.ldc + column;
      Gemm(part);
    }
  });
}

template void ParallelGemm<float>(ThreadPool&, const GemmArgs<float>&);
template void ParallelGemm<double>(ThreadPool&, const GemmArgs<double>&);

void InitOpenBlas() { openblas_set_num_threads(1); }

std::string OpenBlasCoreType() { return openblas_get_corename(); }

}  // namespace mt::kernels::cpu
