// This file is compiled with MT_CPU_ARCH like the loops beside it, so the compiler's predefined
// macros say what the loops may use. It contains data only and runs on any processor.
#include "kernels/cpu/loops/compiled_for.h"

namespace mt::kernels::cpu {

// The compiler defines each of these as 1, or not at all.
#define MT_DEFINED(macro) MT_DEFINED_TEXT(macro)
#define MT_DEFINED_TEXT(text) (#text[0] == '1')

constinit const CompiledFor kCompiledFor = {
    .sse42 = MT_DEFINED(__SSE4_2__),
    .avx = MT_DEFINED(__AVX__),
    .avx2 = MT_DEFINED(__AVX2__),
    .fma = MT_DEFINED(__FMA__),
    .bmi2 = MT_DEFINED(__BMI2__),
    .avx512f = MT_DEFINED(__AVX512F__),
    .avx512bw = MT_DEFINED(__AVX512BW__),
    .avx512dq = MT_DEFINED(__AVX512DQ__),
    .avx512vl = MT_DEFINED(__AVX512VL__),
};

}  // namespace mt::kernels::cpu
