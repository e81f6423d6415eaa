// Helpers shared by the experiments: error checks, random bf16 data, timing by CUDA events, and a
// cuBLASLt GEMM whose algorithm is chosen by timing the heuristic's candidates. Experiments are
// measurements that decide a design question once; they are not part of the product.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#define CUDA_OK(call)                                                                      \
  do {                                                                                     \
    const cudaError_t status = (call);                                                     \
    if (status != cudaSuccess) {                                                           \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status)); \
      std::exit(1);                                                                        \
    }                                                                                      \
  } while (0)
#define BLAS_OK(call)                                                                           \
  do {                                                                                          \
    const cublasStatus_t status = (call);                                                       \
    if (status != CUBLAS_STATUS_SUCCESS) {                                                      \
      std::fprintf(stderr, "%s:%d: cublas %d\n", __FILE__, __LINE__, static_cast<int>(status)); \
      std::exit(1);                                                                             \
    }                                                                                           \
  } while (0)

namespace experiment {

using bf16 = __nv_bfloat16;

template <class T>
T* Allocate(int64_t count) {
  void* data = nullptr;
  CUDA_OK(cudaMalloc(&data, static_cast<size_t>(count) * sizeof(T)));
  return static_cast<T*>(data);
}

// Uniform in [-scale, scale), from a counter: realistic data, so that the clocks are those of real
// work.
static __global__ void FillRandom(bf16* out, int64_t count, uint32_t seed, float scale) {
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761U ^ seed;
    x ^= x >> 16;
    x *= 0x85EBCA6BU;
    x ^= x >> 13;
    x *= 0xC2B2AE35U;
    x ^= x >> 16;
    out[i] = __float2bfloat16((static_cast<float>(x) * 0x1p-31F - 1.0F) * scale);
  }
}

inline bf16* RandomBf16(int64_t count, uint32_t seed, float scale = 1.0F) {
  bf16* data = Allocate<bf16>(count);
  FillRandom<<<1024, 256>>>(data, count, seed, scale);
  CUDA_OK(cudaGetLastError());
  return data;
}

// Returns the median microseconds of `work` on `stream`, over `repeats` timings of `inner` calls
// each.
inline double MedianMicros(cudaStream_t stream, const std::function<void()>& work, int repeats = 15,
                           int inner = 4) {
  cudaEvent_t begin, end;
  CUDA_OK(cudaEventCreate(&begin));
  CUDA_OK(cudaEventCreate(&end));
  for (int i = 0; i < 3; ++i) work();
  std::vector<float> times;
  for (int r = 0; r < repeats; ++r) {
    CUDA_OK(cudaEventRecord(begin, stream));
    for (int i = 0; i < inner; ++i) work();
    CUDA_OK(cudaEventRecord(end, stream));
    CUDA_OK(cudaEventSynchronize(end));
    float ms = 0;
    CUDA_OK(cudaEventElapsedTime(&ms, begin, end));
    times.push_back(ms * 1000.0F / static_cast<float>(inner));
  }
  CUDA_OK(cudaEventDestroy(begin));
  CUDA_OK(cudaEventDestroy(end));
  std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
  return times[static_cast<size_t>(repeats / 2)];
}

// Returns the microseconds of one call on a hot device: a loop of `seconds`, of which the second
// half counts.
inline double HotMicros(cudaStream_t stream, double seconds, const std::function<void()>& work) {
  constexpr int kBatch = 50;
  const auto begin = std::chrono::steady_clock::now();
  const auto since = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const auto batch = [&] {
    for (int i = 0; i < kBatch; ++i) work();
    CUDA_OK(cudaStreamSynchronize(stream));
  };
  while (since() < seconds / 2) batch();
  const double from = since();
  int64_t calls = 0;
  for (; since() < seconds; calls += kBatch) batch();
  return (since() - from) * 1e6 / static_cast<double>(calls);
}

// D = op(A) op(B) + beta C in column-major terms, bf16 inputs, fp32 accumulation.
struct GemmArgs {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  const bf16* a = nullptr;
  const bf16* b = nullptr;
  void* d = nullptr;
  cudaDataType_t d_type = CUDA_R_16BF;
  float beta = 0;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;  // operand of the epilogue: read (BIAS) or written (BGRAD)
  cudaDataType_t bias_type = CUDA_R_16BF;
  void* aux = nullptr;  // [m, n] bf16
  int sm_target = 0;    // 0: all
};

class Gemm {
 public:
  Gemm(cublasLtHandle_t handle, void* workspace, size_t workspace_bytes, const GemmArgs& p)
      : handle_(handle), workspace_(workspace), workspace_bytes_(workspace_bytes), p_(p) {
    BLAS_OK(cublasLtMatmulDescCreate(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t ta = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t tb = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    Set(CUBLASLT_MATMUL_DESC_TRANSA, ta);
    Set(CUBLASLT_MATMUL_DESC_TRANSB, tb);
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue);
    if (p.bias != nullptr) {
      Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
      Set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, p.bias_type);
    }
    if (p.aux != nullptr) {
      const int64_t ld = p.m;
      Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.aux);
      Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, ld);
    }
    if (p.sm_target > 0) {
      const int32_t target = p.sm_target;
      Set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, target);
    }
    BLAS_OK(cublasLtMatrixLayoutCreate(&a_, CUDA_R_16BF, p.transpose_a ? p.k : p.m,
                                       p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m));
    BLAS_OK(cublasLtMatrixLayoutCreate(&b_, CUDA_R_16BF, p.transpose_b ? p.n : p.k,
                                       p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k));
    BLAS_OK(cublasLtMatrixLayoutCreate(&d_, p.d_type, p.m, p.n, p.m));
    FindCandidates();
  }
  ~Gemm() {
    cublasLtMatrixLayoutDestroy(a_);
    cublasLtMatrixLayoutDestroy(b_);
    cublasLtMatrixLayoutDestroy(d_);
    cublasLtMatmulDescDestroy(desc_);
  }
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  bool possible() const { return num_candidates_ > 0; }

  void Run(cudaStream_t stream) const { RunWith(candidates_[best_].algo, stream); }

  // Times every candidate and keeps the fastest.
  double Tune(cudaStream_t stream) {
    double best = 1e30;
    for (int i = 0; i < num_candidates_; ++i) {
      const double us = MedianMicros(
          stream, [&] { RunWith(candidates_[i].algo, stream); }, 5, 2);
      if (us < best) {
        best = us;
        best_ = i;
      }
    }
    return best;
  }
  double Teraflops(double us) const {
    return 2.0 * static_cast<double>(p_.m) * static_cast<double>(p_.n) * static_cast<double>(p_.k) /
           us / 1e6;
  }

 private:
  template <class T>
  void Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    BLAS_OK(cublasLtMatmulDescSetAttribute(desc_, attribute, &value, sizeof(value)));
  }
  void FindCandidates() {
    cublasLtMatmulPreference_t preference;
    BLAS_OK(cublasLtMatmulPreferenceCreate(&preference));
    BLAS_OK(cublasLtMatmulPreferenceSetAttribute(preference,
                                                 CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &workspace_bytes_, sizeof(workspace_bytes_)));
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, desc_, a_, b_, d_, d_, preference, kMaxCandidates, candidates_, &found);
    num_candidates_ = status == CUBLAS_STATUS_SUCCESS ? found : 0;
    cublasLtMatmulPreferenceDestroy(preference);
  }
  void RunWith(const cublasLtMatmulAlgo_t& algo, cudaStream_t stream) const {
    const float alpha = 1;
    BLAS_OK(cublasLtMatmul(handle_, desc_, &alpha, p_.a, a_, p_.b, b_, &p_.beta, p_.d, d_, p_.d, d_,
                           &algo, workspace_, workspace_bytes_, stream));
  }

  cublasLtHandle_t handle_;
  void* workspace_;
  size_t workspace_bytes_;
  GemmArgs p_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, d_ = nullptr;
  // (A vector of this typedef'd struct crashes nvcc 13.0 under C++20.)
  static constexpr int kMaxCandidates = 16;
  cublasLtMatmulHeuristicResult_t candidates_[kMaxCandidates] = {};
  int num_candidates_ = 0;
  int best_ = 0;
};

}  // namespace experiment
