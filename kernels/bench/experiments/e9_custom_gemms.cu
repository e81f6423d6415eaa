// E9: the custom GEMMs (kernels/cuda/gemm/custom_gemm.h) against cuBLASLt's with and without an
// epilogue, on a hot device: each in loops of a second, of which the second half counts. Uniform
// operands. Column-major terms, as in e2_epilogues.cu.
#include "kernels/bench/experiments/measure.cuh"
#include "kernels/cuda/gemm/custom_gemm.h"

namespace experiment {
namespace {

using mt::kernels::GradMode;
namespace cuda = mt::kernels::cuda;

constexpr size_t kWorkspace = size_t{64} << 20;
constexpr double kSeconds = 1;

struct Bench {
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  cuda::CudaStream stream{0, mt::kernels::StreamPriority::kLow};
  cuda::DeviceLimits limits{.ordinal = 0, .major = 9};

  // Prints the microseconds of cuBLASLt's GEMM, of the same with `epilogue`, and of the custom one
  // for `custom`.
  void Compare(const char* what, GemmArgs p, cublasLtEpilogue_t epilogue, cuda::Epilogue custom,
               void* custom_bias) {
    const bf16* const aux = static_cast<const bf16*>(p.aux);
    void* const bias = p.bias;
    p.aux = p.bias = nullptr;
    Gemm plain(handle, workspace, kWorkspace, p);
    if (epilogue != CUBLASLT_EPILOGUE_BIAS) p.aux = const_cast<bf16*>(aux);
    if (epilogue != CUBLASLT_EPILOGUE_DGELU) p.bias = bias;
    p.epilogue = epilogue;
    Gemm fused(handle, workspace, kWorkspace, p);
    plain.Tune(stream.raw());
    fused.Tune(stream.raw());
    const cuda::GemmKey key{
        .transpose_a = p.transpose_a, .m = p.m, .n = p.n, .k = p.k, .epilogue = custom};
    const auto run_custom = [&] {
      cuda::RunCustomGemm(
          stream, limits, key,
          {.a = p.a, .b = p.b, .d = p.d, .bias = custom_bias, .aux = const_cast<bf16*>(aux)},
          GradMode::kOverwrite, {workspace, kWorkspace});
    };
    for (int turn = 0; turn < 2; ++turn) {
      std::printf("%-10s %5ld x %4ld x %5ld: %7.1f | %7.1f | %7.1f\n", what, p.n, p.k, p.m,
                  HotMicros(stream.raw(), kSeconds, [&] { plain.Run(stream.raw()); }),
                  HotMicros(stream.raw(), kSeconds, [&] { fused.Run(stream.raw()); }),
                  HotMicros(stream.raw(), kSeconds, run_custom));
      std::fflush(stdout);
    }
  }
};

void Main() {
  Bench bench;
  BLAS_OK(cublasLtCreate(&bench.handle));
  CUDA_OK(cudaMalloc(&bench.workspace, kWorkspace));
  CUDA_OK(cudaDeviceGetAttribute(&bench.limits.num_sms, cudaDevAttrMultiProcessorCount, 0));
  std::printf("tokens x inner x features, us: no epilogue | cuBLASLt's | own\n");
  struct Shape {
    int64_t tokens, h;
  };
  for (const Shape s : {Shape{32768, 768}, {65536, 1024}, {16384, 1600}, {16384, 2048}}) {
    const int64_t f = 4 * s.h;
    bf16* x = RandomBf16(s.tokens * s.h, 1);
    bf16* w = RandomBf16(s.h * f, 6, 0.05F);
    bf16* pre = RandomBf16(s.tokens * f, 4, 3.0F);
    bf16* y = Allocate<bf16>(s.tokens * f);
    bf16* bias = RandomBf16(f, 3);
    float* dbias = Allocate<float>(f);
    GemmArgs p{.m = f, .n = s.tokens, .k = s.h, .a = w, .b = x, .d = y};
    p.aux = pre;
    // The custom GEMM computes the column sums as well.
    bench.Compare("fc2 dgrad", p, CUBLASLT_EPILOGUE_DGELU, cuda::Epilogue::kGeluGradBias, dbias);
    p.transpose_a = true;
    p.bias = bias;
    bench.Compare("fc1 GELU", p, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, cuda::Epilogue::kGeluAuxBias,
                  bias);
    p.m = 3 * s.h;
    bench.Compare("qkv bias", p, CUBLASLT_EPILOGUE_BIAS, cuda::Epilogue::kBias, bias);
    for (void* q : {static_cast<void*>(x), static_cast<void*>(w), static_cast<void*>(pre),
                    static_cast<void*>(y), static_cast<void*>(bias), static_cast<void*>(dbias)})
      CUDA_OK(cudaFree(q));
  }
}

}  // namespace
}  // namespace experiment

int main() { experiment::Main(); }
