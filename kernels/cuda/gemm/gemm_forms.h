// The forms of a GEMM with an epilogue: a custom kernel, cuBLASLt's fused epilogue, or a simpler
// GEMM followed by separate kernels. Both training and races enqueue them here, so what is timed is
// what is run. Each output is rounded once in every form, which is why no form adds a bias after a
// GEMM that has already rounded its sum.
#pragma once

#include "kernels/cuda/gemm/cublas_gemm.h"
#include "kernels/ops/act.h"
#include "kernels/ops/vector.h"

namespace mt::kernels::cuda {

// Bytes in which the separate form of kSwigluGrad stores the GEMM's result; 0 for all other
// epilogues.
int64_t SeparateScratchBytes(const GemmKey& key);

// Thread-safe. `bias_mode` applies to kGeluGradBias, whose bias gradient is overwritten or added
// to.
class GemmForms {
 public:
  // None is owned; all must outlive this object.
  GemmForms(const CublasGemm* cublas, const ActOps* act, const VectorOps* vector)
      : cublas_(cublas), act_(act), vector_(vector) {}

  // HasCustom returns whether this device has a custom kernel; RunCustom enqueues it. `workspace`:
  // CustomGemmScratchBytes.
  bool HasCustom(const GemmKey& key) const;
  void RunCustom(const Stream& stream, const GemmKey& key, const GemmOperands& operands,
                 GradMode bias_mode, const Workspace& workspace) const;
  // The separate form: the caller runs SeparateGemmOf(key) with SeparateOperands in any of its
  // forms, and FinishSeparate enqueues the kernels behind it. `workspace`: kGemmWorkspaceBytes,
  // followed by SeparateScratchBytes.
  static GemmOperands SeparateOperands(const GemmKey& key, const GemmOperands& operands,
                                       const Workspace& workspace);
  void FinishSeparate(Stream& stream, const GemmKey& key, const GemmOperands& operands,
                      const Workspace& workspace, GradMode bias_mode) const;

 private:
  const CublasGemm* const cublas_;
  const ActOps* const act_;
  const VectorOps* const vector_;
};

}  // namespace mt::kernels::cuda
