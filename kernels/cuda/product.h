// One matrix product through cuBLASLt, and the table of algorithms that were chosen by timing the
// heuristic's candidates on random data. Column-major terms: D [m, n] = op(A) op(B) + (add ? D :
// 0), leading dimensions packed, products summed in fp32 (f32 operands too: never TF32).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>

#include <cublasLt.h>

#include "common/base/mutex.h"
#include "kernels/core/tensor.h"
#include "kernels/cuda/cuda_device.h"

namespace mt::kernels::cuda {

// What the epilogue does with the sum before it is stored.
enum class Epilogue : uint8_t {
  kNone,
  kBias,         // + bias[i] of row i of D
  kGeluAux,      // aux = sum, D = gelu(sum)
  kGeluAuxBias,  // aux = sum + bias, D = gelu(aux)
  kGeluGrad,     // D = sum * gelu'(aux)
};

// Everything an algorithm is chosen by.
struct ProductKey {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  DType in = DType::kBf16, out = DType::kBf16;  // of A and B; of D, bias and aux
  Epilogue epilogue = Epilogue::kNone;
  bool add = false;
  int alignment = 16;  // bytes that all pointers are multiples of, at most 16
  friend auto operator<=>(const ProductKey&, const ProductKey&) = default;
};

struct ProductOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  const void* bias = nullptr;
  void* aux = nullptr;  // [m, n]
};

// The workspace every product is offered; Hopper's fastest kernels want 32 MiB.
inline constexpr int64_t kProductWorkspaceBytes = int64_t{32} << 20;

// An algorithm and what it took; `possible` is false where cuBLASLt has none for the key.
struct ProductChoice {
  bool possible = false;
  cublasLtMatmulAlgo_t algorithm{};
  double us = 0;
};

// Thread-safe. Choices are made when first asked for, which is while a run is planned
// (LinearOps::WorkspaceBytes); timing takes memory for its operands and gives it back.
class ProductTable {
 public:
  explicit ProductTable(const DeviceLimits& limits);
  ~ProductTable();
  ProductTable(const ProductTable&) = delete;
  ProductTable& operator=(const ProductTable&) = delete;

  const ProductChoice& Choose(const ProductKey& key);
  // Enqueues the product with its chosen algorithm. CHECKs that there is one.
  void Run(const Stream& stream, const ProductKey& key, const ProductOperands& operands,
           const Workspace& workspace);
  // Which of two ways is faster is measured by the caller once per key and kept here.
  bool Remember(const ProductKey& key, bool wins);
  // 1, 0, or -1 where nothing is remembered.
  int Remembered(const ProductKey& key);
  const DeviceLimits& limits() const { return limits_; }

 private:
  ProductChoice Tune(const ProductKey& key);
  void Enqueue(cudaStream_t stream, const ProductKey& key, const ProductOperands& operands,
               const cublasLtMatmulAlgo_t& algorithm, const Workspace& workspace) const;

  const DeviceLimits limits_;
  cublasLtHandle_t handle_ = nullptr;
  base::Mutex mutex_;
  std::map<ProductKey, ProductChoice> choices_ GUARDED_BY(mutex_);
  std::map<ProductKey, bool> remembered_ GUARDED_BY(mutex_);
};

// Buffers with random contents for timing, and the median time of a piece of work on a stream of
// their own; freed with it.
class TuningRun {
 public:
  explicit TuningRun(const DeviceLimits& limits);
  // [elements] of `dtype`, normal numbers.
  void* Random(DType dtype, int64_t elements);
  Stream& stream() { return stream_; }
  // Median microseconds of `work` over `repeats` timings, after one that does not count.
  template <class Work>
  double MedianUs(int repeats, const Work& work) {
    work();
    for (int i = 0; i < repeats; ++i) {
      Begin();
      work();
      times_[static_cast<size_t>(i)] = End();
    }
    return Median(repeats);
  }

 private:
  static constexpr int kMaxRepeats = 15;
  void Begin();
  double End();
  double Median(int count);

  CudaDevice device_;
  CudaStream stream_;
  std::array<std::unique_ptr<DeviceBuffer>, 8> buffers_;
  size_t num_buffers_ = 0;
  std::array<double, kMaxRepeats> times_{};
  std::unique_ptr<std::array<cudaEvent_t, 2>, void (*)(std::array<cudaEvent_t, 2>*)> events_;
};

}  // namespace mt::kernels::cuda
