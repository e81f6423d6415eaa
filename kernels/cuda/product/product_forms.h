// The forms of a GEMM with an epilogue: a custom kernel, cuBLASLt's fused epilogue, or a simpler
// GEMM followed by separate kernels. Both training and races enqueue them here, so what is timed is
// what is run. Each output is rounded once in every form, which is why no form adds a bias after a
// GEMM that has already rounded its sum.
#pragma once

#include "kernels/cuda/product/product.h"
#include "kernels/ops/act.h"
#include "kernels/ops/vector.h"

namespace mt::kernels::cuda {

// Bytes that the fused form needs for epilogue kBiasGrad with `add`: cuBLASLt's epilogue can only
// store the bias gradient [columns], which is then added by a separate kernel.
int64_t BiasGradScratchBytes(int64_t columns);
// Bytes in which the separate form of kSwigluGrad stores the GEMM's result; 0 for all other
// epilogues.
int64_t SeparateScratchBytes(const ProductKey& key);

// Thread-safe. `bias_mode` applies to kGeluGradBias, whose bias gradient is overwritten or added
// to; for kBiasGrad the key's `add` decides.
class ProductForms {
 public:
  // None is owned; all must outlive this object.
  ProductForms(const Products* products, const ActOps* act, const VectorOps* vector)
      : products_(products), act_(act), vector_(vector) {}

  // HasOwn returns whether this device has a custom kernel; RunOwn enqueues it. `workspace`:
  // OwnProductScratchBytes.
  bool HasOwn(const ProductKey& key) const;
  void RunOwn(const Stream& stream, const ProductKey& key, const ProductOperands& operands,
              GradMode bias_mode, const Workspace& workspace) const;
  // `workspace`: kProductWorkspaceBytes, followed by BiasGradScratchBytes(n) where needed.
  void RunFused(Stream& stream, const ProductKey& key, const ProductOperands& operands,
                const ProductAlgorithm& algorithm, const Workspace& workspace) const;
  // The separate form: the caller runs SeparateProductOf(key) with SeparateOperands in any of its
  // forms, and FinishSeparate enqueues the kernels behind it. `workspace`: kProductWorkspaceBytes,
  // followed by SeparateScratchBytes.
  static ProductOperands SeparateOperands(const ProductKey& key, const ProductOperands& operands,
                                          const Workspace& workspace);
  void FinishSeparate(Stream& stream, const ProductKey& key, const ProductOperands& operands,
                      const Workspace& workspace, GradMode bias_mode) const;

 private:
  const Products* const products_;
  const ActOps* const act_;
  const VectorOps* const vector_;
};

}  // namespace mt::kernels::cuda
