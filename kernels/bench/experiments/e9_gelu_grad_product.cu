// E9: the own product of GELU's gradient (kernels/cuda/gelu_grad_product.h), which also gives the
// bias gradient of the layer in front, against cuBLASLt's product with DGELU and without any
// epilogue, on a device that is hot: each in loops of a second, the second half of it counted.
// Column-major terms, as in e2_epilogues.cu.
#include "kernels/bench/experiments/measure.cuh"
#include "kernels/cuda/gelu_grad_product.h"

namespace experiment {
namespace {

using mt::kernels::DType;
using mt::kernels::GradMode;
namespace cuda = mt::kernels::cuda;

void Main(double seconds) {
  cublasLtHandle_t handle = nullptr;
  BLAS_OK(cublasLtCreate(&handle));
  constexpr size_t kWorkspace = size_t{64} << 20;
  void* workspace = nullptr;
  CUDA_OK(cudaMalloc(&workspace, kWorkspace));
  const cuda::CudaStream stream(0, mt::kernels::StreamPriority::kLow);
  cuda::DeviceLimits limits{.ordinal = 0, .major = 9};
  CUDA_OK(cudaDeviceGetAttribute(&limits.num_sms, cudaDevAttrMultiProcessorCount, 0));
  std::printf("input gradient of fc2, us: no epilogue | DGELU | own, with column sums\n");
  struct Shape {
    int64_t tokens, h;
  };
  for (const Shape s : {Shape{32768, 768}, {65536, 1024}, {16384, 1600}, {16384, 2048}}) {
    const int64_t f = 4 * s.h;
    bf16* dy = RandomBf16(s.tokens * s.h, 1);
    bf16* pre = RandomBf16(s.tokens * f, 4, 3.0F);
    bf16* dpre = Allocate<bf16>(s.tokens * f);
    bf16* w2 = RandomBf16(s.h * f, 6, 0.02F);
    float* dbias = Allocate<float>(f);
    Product p{.m = f, .n = s.tokens, .k = s.h, .a = w2, .b = dy, .d = dpre};
    Gemm plain(handle, workspace, kWorkspace, p);
    p.aux = pre;
    p.epilogue = CUBLASLT_EPILOGUE_DGELU;
    Gemm fused(handle, workspace, kWorkspace, p);
    plain.Tune(stream.raw());
    fused.Tune(stream.raw());
    const cuda::ProductKey key{
        .m = f, .n = s.tokens, .k = s.h, .epilogue = cuda::Epilogue::kGeluGradBias};
    const auto own = [&] {
      cuda::RunGeluGradProduct(stream, limits, key,
                               {.a = w2, .b = dy, .d = dpre, .bias = dbias, .aux = pre},
                               GradMode::kOverwrite, {workspace, kWorkspace});
    };
    for (int turn = 0; turn < 2; ++turn) {
      std::printf("T %5ld h %4ld: %7.1f | %7.1f | %7.1f\n", s.tokens, s.h,
                  HotMicros(stream.raw(), seconds, [&] { plain.Run(stream.raw()); }),
                  HotMicros(stream.raw(), seconds, [&] { fused.Run(stream.raw()); }),
                  HotMicros(stream.raw(), seconds, own));
    }
    for (void* q : {static_cast<void*>(dy), static_cast<void*>(pre), static_cast<void*>(dpre),
                    static_cast<void*>(w2), static_cast<void*>(dbias)})
      CUDA_OK(cudaFree(q));
  }
}

}  // namespace
}  // namespace experiment

int main() { experiment::Main(1); }
