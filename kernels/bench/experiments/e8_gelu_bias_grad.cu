// E8: the cost of the bias gradient of a layer before GELU as part of the GEMM that computes the
// gradient of that layer's output (DGELU_BGRAD), against column sums by a separate kernel. It
// decides whether InputGradAct provides it. Column-major terms, as in e2_epilogues.cu.
#include "kernels/bench/experiments/measure.cuh"

namespace experiment {
namespace {

struct Lt {
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  size_t bytes = size_t{64} << 20;
  cudaStream_t stream = nullptr;
};

// Returns the better time of two tunings; negative: cuBLASLt has no algorithm.
double Time(const Lt& lt, const GemmArgs& p) {
  double best = -1;
  for (int turn = 0; turn < 2; ++turn) {
    Gemm gemm(lt.handle, lt.workspace, lt.bytes, p);
    if (!gemm.possible()) return -1;
    gemm.Tune(lt.stream);
    const double us = MedianMicros(lt.stream, [&] { gemm.Run(lt.stream); });
    best = best < 0 ? us : std::min(best, us);
  }
  return best;
}

void Main() {
  Lt lt;
  BLAS_OK(cublasLtCreate(&lt.handle));
  CUDA_OK(cudaMalloc(&lt.workspace, lt.bytes));
  CUDA_OK(cudaStreamCreate(&lt.stream));
  std::printf("input gradient of fc2, us: DGELU | DGELU_BGRAD, bias fp32 | bias bf16\n");
  struct Shape {
    int64_t tokens, h;
  };
  for (const Shape s : {Shape{32768, 768}, {65536, 1024}, {16384, 1600}, {16384, 2048}}) {
    const int64_t f = 4 * s.h;
    bf16* dy = RandomBf16(s.tokens * s.h, 1);
    bf16* pre = RandomBf16(s.tokens * f, 4);
    bf16* dpre = Allocate<bf16>(s.tokens * f);
    bf16* w2 = RandomBf16(s.h * f, 6, 0.02F);
    float* dbias = Allocate<float>(f);
    // dpre^T [f, T] = w2^T [f, h] dy^T: w2 row-major [h, f] is column-major [f, h].
    GemmArgs p{.m = f, .n = s.tokens, .k = s.h, .a = w2, .b = dy, .d = dpre, .aux = pre};
    p.epilogue = CUBLASLT_EPILOGUE_DGELU;
    const double plain = Time(lt, p);
    p.epilogue = CUBLASLT_EPILOGUE_DGELU_BGRAD;
    p.bias = dbias;
    p.bias_type = CUDA_R_32F;
    const double single = Time(lt, p);
    p.bias_type = CUDA_R_16BF;
    const double half = Time(lt, p);
    std::printf("T %5ld h %4ld: %7.1f | %7.1f (%+5.1f us) | %7.1f (%+5.1f us)\n", s.tokens, s.h,
                plain, single, single - plain, half, half - plain);
    for (void* q : {static_cast<void*>(dy), static_cast<void*>(pre), static_cast<void*>(dpre),
                    static_cast<void*>(w2), static_cast<void*>(dbias)})
      CUDA_OK(cudaFree(q));
  }
}

}  // namespace
}  // namespace experiment

int main() { experiment::Main(); }
