// One GEMM through cuBLASLt with a given algorithm, and the algorithms that cuBLASLt offers for it.
// Accumulation is fp32 (f32 operands too: never TF32). gemm_key.h defines the terms.
#pragma once

#include <vector>

#include <cublasLt.h>

#include "kernels/core/tensor.h"
#include "kernels/cuda/device/cuda_device.h"
#include "kernels/cuda/gemm/gemm_key.h"

namespace mt::kernels::cuda {

// An algorithm of cuBLASLt: opaque bytes that are valid for one version of the library and one kind
// of device. (A named struct, because vectors of cuBLASLt's unnamed struct crash nvcc 13.0.)
struct GemmAlgorithm {
  cublasLtMatmulAlgo_t raw{};
};

// Device pointers of one GEMM, in the column-major terms of GemmKey.
struct GemmOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  // [m], read; for kGeluGradBias written.
  void* bias = nullptr;
  // The activation's input: [m, n], read by kGeluGrad and kGeluGradBias, otherwise written; for
  // kSwigluGrad [2 m, n], read.
  void* aux = nullptr;
};

// Bytes of workspace that every GEMM is offered; Hopper's fastest kernels use 32 MiB.
inline constexpr int64_t kGemmWorkspaceBytes = int64_t{32} << 20;

// The cuBLASLt handle of one GPU and calls on it. Thread-safe. Errors of the library throw
// DeviceError.
class CublasGemm {
 public:
  explicit CublasGemm(const DeviceLimits& limits);
  ~CublasGemm();
  CublasGemm(const CublasGemm&) = delete;
  CublasGemm& operator=(const CublasGemm&) = delete;

  // Returns the algorithms that the heuristic offers when asked for the whole device and for parts
  // of it, with and without a workspace, its best guess first; empty if cuBLASLt has no such GEMM.
  // (A single query returns at most eight, cuBLASLt 13.1.)
  std::vector<GemmAlgorithm> Candidates(const GemmKey& key) const;
  // Returns whether the algorithm can compute this GEMM on this device within
  // kGemmWorkspaceBytes.
  bool Accepts(const GemmKey& key, const GemmAlgorithm& algorithm) const;
  // Enqueues the GEMM; returns false if the library refuses it.
  bool TryRun(const Stream& stream, const GemmKey& key, const GemmOperands& operands,
              const GemmAlgorithm& algorithm, const Workspace& workspace) const;
  // Enqueues the GEMM; throws DeviceError if the library refuses it.
  void Run(const Stream& stream, const GemmKey& key, const GemmOperands& operands,
           const GemmAlgorithm& algorithm, const Workspace& workspace) const;
  const DeviceLimits& limits() const { return limits_; }

 private:
  struct Question;
  void Ask(const GemmKey& key, const Question& question, std::vector<GemmAlgorithm>* answers) const;
  cublasStatus_t Enqueue(const Stream& stream, const GemmKey& key, const GemmOperands& operands,
                         const GemmAlgorithm& algorithm, const Workspace& workspace) const;

  const DeviceLimits limits_;
  cublasLtHandle_t handle_ = nullptr;
};

}  // namespace mt::kernels::cuda
