// GEMM on row-major matrices through OpenBLAS. OpenBLAS itself always runs on one thread
// (README.md, decision 1); a large GEMM is cut into blocks of C over the backend's threads, and
// the inner dimension is never cut, so each element of C is summed by one thread. T is float or
// double. Sizes and strides must fit OpenBLAS's int (checked).
#pragma once

#include <cstdint>
#include <string>

#include "kernels/cpu/thread_pool.h"

namespace mt::kernels::cpu {

// C = alpha op(A) op(B) + beta C with op(A) [m, k], op(B) [k, n], C [m, n]; lda, ldb and ldc are
// row strides in elements. C is not read if beta is 0.
template <class T>
struct GemmArgs {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  T alpha = 1;
  const T* a = nullptr;
  int64_t lda = 0;
  const T* b = nullptr;
  int64_t ldb = 0;
  T beta = 0;
  T* c = nullptr;
  int64_t ldc = 0;
};

// Runs on the calling thread.
template <class T>
void Gemm(const GemmArgs<T>& args);
template <>
void Gemm<float>(const GemmArgs<float>& args);
template <>
void Gemm<double>(const GemmArgs<double>& args);

// Runs over the pool's threads, on a grid of blocks that depends only on the shape and the thread
// count. Blocks until done.
template <class T>
void ParallelGemm(ThreadPool& pool, const GemmArgs<T>& args);

// Sets OpenBLAS to one thread for the whole process.
void InitOpenBlas();

}  // namespace mt::kernels::cpu
