// The instruction sets that the files of this folder were compiled for, as constants, so that
// reading them executes none of these instructions.
#pragma once

namespace mt::kernels::cpu {

struct CompiledFor {
  bool sse42, avx, avx2, fma, bmi2, avx512f, avx512bw, avx512dq, avx512vl;
};

extern const CompiledFor kCompiledFor;

}  // namespace mt::kernels::cpu
