// One matrix product through cuBLASLt with a given algorithm, and the algorithms there are for it.
// Products are summed in fp32 (f32 operands too: never TF32); product_key.h has the terms.
#pragma once

#include <vector>

#include <cublasLt.h>

#include "kernels/core/tensor.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/product_key.h"

namespace mt::kernels::cuda {

// An algorithm of cuBLASLt, opaque bytes that its version understands on the device they are from.
// (A struct of our own: vectors of cuBLASLt's unnamed ones crash nvcc 13.0.)
struct ProductAlgorithm {
  cublasLtMatmulAlgo_t raw{};
};

struct ProductOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  void* bias = nullptr;  // [m], read; of kBiasGrad [n], of kGeluGradBias [m], written
  void* aux = nullptr;   // [m, n]; read by kGeluGrad, else written
};

// The workspace every product is offered; Hopper's fastest kernels want 32 MiB.
inline constexpr int64_t kProductWorkspaceBytes = int64_t{32} << 20;

// Thread-safe.
class Products {
 public:
  explicit Products(const DeviceLimits& limits);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  // What the heuristic offers, asked for the whole device and for parts of it, with and without a
  // workspace, its best guess first; empty: cuBLASLt has no such product. (One question gets eight
  // answers at most, cuBLASLt 13.1.)
  std::vector<ProductAlgorithm> Candidates(const ProductKey& key) const;
  // Whether the algorithm does this product on this device within the workspace.
  bool Accepts(const ProductKey& key, const ProductAlgorithm& algorithm) const;
  // Enqueues the product and tells whether the library took it.
  bool TryRun(const Stream& stream, const ProductKey& key, const ProductOperands& operands,
              const ProductAlgorithm& algorithm, const Workspace& workspace) const;
  // Enqueues the product.
  void Run(const Stream& stream, const ProductKey& key, const ProductOperands& operands,
           const ProductAlgorithm& algorithm, const Workspace& workspace) const;
  const DeviceLimits& limits() const { return limits_; }

 private:
  struct Question;
  void Ask(const ProductKey& key, const Question& question,
           std::vector<ProductAlgorithm>* answers) const;
  cublasStatus_t Enqueue(const Stream& stream, const ProductKey& key,
                         const ProductOperands& operands, const ProductAlgorithm& algorithm,
                         const Workspace& workspace) const;

  const DeviceLimits limits_;
  cublasLtHandle_t handle_ = nullptr;
};

}  // namespace mt::kernels::cuda
