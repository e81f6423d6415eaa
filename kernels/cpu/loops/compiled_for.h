// Which instruction sets the files of this folder were built for: constants, so that looking at
// them runs no instruction of those sets.
#pragma once

namespace mt::kernels::cpu {

struct CompiledFor {
  bool sse42, avx, avx2, fma, bmi2, avx512f, avx512bw, avx512dq, avx512vl;
};

extern const CompiledFor kCompiledFor;

}  // namespace mt::kernels::cpu
