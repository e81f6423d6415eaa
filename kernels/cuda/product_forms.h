// The two forms of a product with an activation or a bias gradient: fused, in cuBLASLt's epilogue
// or in a kernel of our own, or separate, a plainer product followed by a kernel of our own. Runs
// and races both enqueue them here, so what is timed is what is run. Each output is rounded once in
// either form, which is why no form adds a bias behind a product that has rounded its sum.
#pragma once

#include "kernels/cuda/product.h"
#include "kernels/ops/act.h"
#include "kernels/ops/vector.h"

namespace mt::kernels::cuda {

// Of a product with epilogue kBiasGrad and `add`: where the fused form leaves the bias gradient,
// which an epilogue can only store, before it is added.
int64_t BiasGradScratchBytes(int64_t columns);

// Thread-safe. In all terms of the fused product `key` (HasSeparateForm) and its operands; the
// first two for those of cuBLASLt (not IsOwn).
class ProductForms {
 public:
  // All outlive this.
  ProductForms(const Products* products, const ActOps* act, const VectorOps* vector)
      : products_(products), act_(act), vector_(vector) {}

  // `workspace`: kProductWorkspaceBytes, and BiasGradScratchBytes of n behind them where that is
  // needed.
  void RunFused(Stream& stream, const ProductKey& key, const ProductOperands& operands,
                const ProductAlgorithm& algorithm, const Workspace& workspace) const;
  // `algorithm` is of SeparateProductOf(key).
  void RunSeparate(Stream& stream, const ProductKey& key, const ProductOperands& operands,
                   const ProductAlgorithm& algorithm, const Workspace& workspace) const;
  // Of kGeluGradBias: whether this device has the kernel, the kernel, and what remains to be done
  // behind the product with kGeluGrad. The bias gradient is written or added to. `workspace`:
  // GeluGradPartialBytes.
  bool HasOwn(const ProductKey& key) const;
  void RunOwn(const Stream& stream, const ProductKey& key, const ProductOperands& operands,
              GradMode mode, const Workspace& workspace) const;
  void SumBiasGrad(Stream& stream, const ProductKey& key, const ProductOperands& operands,
                   GradMode mode) const;

 private:
  const Products* const products_;
  const ActOps* const act_;
  const VectorOps* const vector_;
};

}  // namespace mt::kernels::cuda
