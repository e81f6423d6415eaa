// Finds out whether this process' OpenBLAS multiplies rightly on this processor. One that is older
// than the processor may take kernels that compute wrong values there, without any error; a model
// would be trained on them (docs/troubleshooting.md).
#pragma once

#include <functional>
#include <string>

#include "kernels/cpu/gemm.h"

namespace mt::kernels::cpu {

// What multiplies, as Gemm does.
struct BlasCalls {
  std::function<void(const GemmArgs<float>&)> f32 = Gemm<float>;
  std::function<void(const GemmArgs<double>&)> f64 = Gemm<double>;
};

// Multiplies a fixed set of small matrices in fp32 and fp64: both transposes, odd sizes, sizes
// beside those at which OpenBLAS changes its kernels, beta 0 over NaN, rows with gaps between them.
// The values are whole numbers whose sums are exact in any order, so every element of C has to be
// that of plain loops, and what lies in the gaps has to stay. Returns what is wrong first ("sgemm m
// 7, n 17, k 9, A transposed, beta 0: row 3, column 5 is 12, and has to be 40"); empty: nothing.
// Some milliseconds, on the calling thread.
std::string CheckBlas(const BlasCalls& calls = {});

// "OpenBLAS 0.3.21".
std::string OpenBlasVersion();

}  // namespace mt::kernels::cpu
