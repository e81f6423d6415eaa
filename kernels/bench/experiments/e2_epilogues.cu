// E2: the cost of cuBLASLt's epilogues against separate kernels, and of accumulating the weight
// gradient in fp32. It decides the defaults of LinearOps::ForwardAct, InputGradAct and WeightGrad.
// Column-major terms: a row-major [rows, columns] matrix is a column-major [columns, rows] one.
#include "kernels/bench/experiments/measure.cuh"

namespace experiment {
namespace {

struct Lt {
  cublasLtHandle_t handle;
  void* workspace;
  size_t bytes = size_t{64} << 20;
  cudaStream_t stream;
};

double Time(const Lt& lt, const GemmArgs& p) {
  Gemm gemm(lt.handle, lt.workspace, lt.bytes, p);
  if (!gemm.possible()) return -1;
  gemm.Tune(lt.stream);
  return MedianMicros(lt.stream, [&] { gemm.Run(lt.stream); });
}

// y = gelu_tanh(x + bias), 8 elements per thread.
__global__ void BiasGelu(const bf16* pre, bf16* y, int64_t groups) {
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < groups;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    uint4 raw = reinterpret_cast<const uint4*>(pre)[i];
    auto* v = reinterpret_cast<bf16*>(&raw);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float x = __bfloat162float(v[j]);
      const float t = tanhf(0.7978845608F * (x + 0.044715F * x * x * x));
      v[j] = __float2bfloat16(0.5F * x * (1 + t));
    }
    reinterpret_cast<uint4*>(y)[i] = raw;
  }
}

// dpre = dy gelu'(pre), in place on dy.
__global__ void GeluGrad(bf16* dy, const bf16* pre, int64_t groups) {
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < groups;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    uint4 raw = reinterpret_cast<const uint4*>(dy)[i];
    const uint4 kept = reinterpret_cast<const uint4*>(pre)[i];
    auto* v = reinterpret_cast<bf16*>(&raw);
    const auto* x8 = reinterpret_cast<const bf16*>(&kept);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float x = __bfloat162float(x8[j]);
      const float u = 0.7978845608F * (x + 0.044715F * x * x * x);
      const float t = tanhf(u);
      const float du = 0.7978845608F * (1 + 3 * 0.044715F * x * x);
      v[j] =
          __float2bfloat16(__bfloat162float(v[j]) * (0.5F * (1 + t) + 0.5F * x * (1 - t * t) * du));
    }
    reinterpret_cast<uint4*>(dy)[i] = raw;
  }
}

// dw [n, k] = dy^T x, in column-major terms [k, n] = x [k, T] dy [n, T]^T.
void WeightGradients(const Lt& lt) {
  std::printf(
      "weight gradient, us (TFLOP/s): D bf16 | D fp32 beta 0 | D fp32 beta 1 | beta 1 over 0 | "
      "+BGRADB fp32\n");
  struct Shape {
    int64_t n, k;
  };
  for (const Shape s :
       {Shape{3072, 768}, {6144, 2048}, {8192, 2048}, {2048, 8192}, {20480, 5120}}) {
    for (const int64_t tokens : {4096, 8192, 16384}) {
      bf16* x = RandomBf16(tokens * s.k, 1);
      bf16* dy = RandomBf16(tokens * s.n, 2);
      float* dw = Allocate<float>(s.n * s.k);
      float* dbias = Allocate<float>(s.n);
      CUDA_OK(cudaMemset(dw, 0, static_cast<size_t>(s.n * s.k) * 4));
      // Column-major: D [k, n] = X [k, T] . dY [n, T]^T.
      GemmArgs p{.transpose_b = true, .m = s.k, .n = s.n, .k = tokens, .a = x, .b = dy, .d = dw};
      const double flops = 2.0 * static_cast<double>(s.n * s.k) * static_cast<double>(tokens);
      const auto tf = [&](double us) { return flops / us / 1e6; };
      const double half = Time(lt, p);
      p.d_type = CUDA_R_32F;
      const double over = Time(lt, p);
      p.beta = 1;
      const double add = Time(lt, p);
      p.beta = 0;
      p.epilogue = CUBLASLT_EPILOGUE_BGRADB;
      p.bias = dbias;
      p.bias_type = CUDA_R_32F;
      const double bgrad = Time(lt, p);
      std::printf(
          "n %5ld k %5ld T %5ld: %7.1f (%3.0f) | %7.1f (%3.0f) | %7.1f (%3.0f) | %+5.1f %% | %7.1f "
          "(%+.1f %%)\n",
          s.n, s.k, tokens, half, tf(half), over, tf(over), add, tf(add), 100 * (add / over - 1),
          bgrad, 100 * (bgrad / over - 1));
      for (void* q : {static_cast<void*>(x), static_cast<void*>(dy), static_cast<void*>(dw),
                      static_cast<void*>(dbias)})
        CUDA_OK(cudaFree(q));
    }
  }
}

void Activations(const Lt& lt) {
  std::printf(
      "\nGELU, us: product+bias | its kernel | sum | one call GELU_AUX_BIAS | fused over sum ||"
      " dgrad | its kernel | sum | one call DGELU | fused over sum\n");
  for (const int64_t h : {768, 1024, 1600, 2048, 3072, 5120}) {
    const int64_t tokens = 8192, f = 4 * h;
    bf16* x = RandomBf16(tokens * h, 1);
    bf16* w1 = RandomBf16(f * h, 2, 0.02F);
    bf16* bias = RandomBf16(f, 3, 0.1F);
    bf16* pre = RandomBf16(tokens * f, 4);
    bf16* y = RandomBf16(tokens * f, 5);
    bf16* w2 = RandomBf16(h * f, 6, 0.02F);
    // y^T [f, T] = w1 [f, h] x^T: column-major A = w1 as [h, f] transposed.
    GemmArgs fwd{.transpose_a = true,
                 .m = f,
                 .n = tokens,
                 .k = h,
                 .a = w1,
                 .b = x,
                 .d = pre,
                 .epilogue = CUBLASLT_EPILOGUE_BIAS,
                 .bias = bias};
    const double gemm = Time(lt, fwd);
    const int64_t groups = tokens * f / 8;
    const double act =
        MedianMicros(lt.stream, [&] { BiasGelu<<<1056, 256, 0, lt.stream>>>(pre, y, groups); });
    fwd.d = y;
    fwd.epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    fwd.aux = pre;
    const double fused = Time(lt, fwd);
    // dpre^T [f, T] = w2^T [f, h] dy^T: w2 row-major [h, f] is column-major [f, h].
    GemmArgs bwd{.m = f, .n = tokens, .k = h, .a = w2, .b = x, .d = y};
    const double dgrad = Time(lt, bwd);
    const double dact =
        MedianMicros(lt.stream, [&] { GeluGrad<<<1056, 256, 0, lt.stream>>>(y, pre, groups); });
    bwd.epilogue = CUBLASLT_EPILOGUE_DGELU;
    bwd.aux = pre;
    const double dfused = Time(lt, bwd);
    std::printf(
        "K %4ld: %7.1f | %6.1f | %7.1f | %7.1f | %+5.1f %% || %7.1f | %6.1f | %7.1f | %7.1f | "
        "%+5.1f %%\n",
        h, gemm, act, gemm + act, fused, 100 * (fused / (gemm + act) - 1), dgrad, dact,
        dgrad + dact, dfused, 100 * (dfused / (dgrad + dact) - 1));
    for (void* q : {x, w1, bias, pre, y, w2}) CUDA_OK(cudaFree(q));
  }
}

void Main() {
  Lt lt{};
  lt.bytes = size_t{64} << 20;
  BLAS_OK(cublasLtCreate(&lt.handle));
  CUDA_OK(cudaMalloc(&lt.workspace, lt.bytes));
  CUDA_OK(cudaStreamCreate(&lt.stream));
  bf16* a = RandomBf16(int64_t{8192} * 8192, 1);
  bf16* b = RandomBf16(int64_t{8192} * 8192, 2);
  bf16* d = Allocate<bf16>(int64_t{8192} * 8192);
  CUDA_OK(cudaDeviceSynchronize());
  const double g =
      Time(lt, {.transpose_a = true, .m = 8192, .n = 8192, .k = 8192, .a = a, .b = b, .d = d});
  std::printf("G: 8192^3 bf16 %.1f us, %.0f TFLOP/s\n\n", g,
              2.0 * 8192.0 * 8192.0 * 8192.0 / g / 1e6);
  WeightGradients(lt);
  Activations(lt);
}

}  // namespace
}  // namespace experiment

int main() { experiment::Main(); }
