// The forms of a product: by a kernel of our own with its epilogue, by cuBLASLt with its epilogue,
// or separate, a plainer product followed by kernels of our own. Runs and races both enqueue them
// here, so what is timed is what is run. Each output is rounded once in any form, which is why none
// adds a bias behind a product that has rounded its sum.
#pragma once

#include "kernels/cuda/product.h"
#include "kernels/ops/act.h"
#include "kernels/ops/vector.h"

namespace mt::kernels::cuda {

// Of a product with epilogue kBiasGrad and `add`: where the fused form leaves the bias gradient,
// which an epilogue can only store, before it is added.
int64_t BiasGradScratchBytes(int64_t columns);
// Of kSwigluGrad: where the separate form leaves the product; else 0.
int64_t SeparateScratchBytes(const ProductKey& key);

// Thread-safe. `bias_mode` is kGeluGradBias's: its bias gradient is written or added to; that of
// kBiasGrad is as the key says.
class ProductForms {
 public:
  // All outlive this.
  ProductForms(const Products* products, const ActOps* act, const VectorOps* vector)
      : products_(products), act_(act), vector_(vector) {}

  // Whether this device has the kernel, and the kernel. `workspace`: OwnProductScratchBytes.
  bool HasOwn(const ProductKey& key) const;
  void RunOwn(const Stream& stream, const ProductKey& key, const ProductOperands& operands,
              GradMode bias_mode, const Workspace& workspace) const;
  // `workspace`: kProductWorkspaceBytes, and BiasGradScratchBytes of n behind them where that is
  // needed.
  void RunFused(Stream& stream, const ProductKey& key, const ProductOperands& operands,
                const ProductAlgorithm& algorithm, const Workspace& workspace) const;
  // The separate form: SeparateProductOf(key) with these operands, in any of its forms, and what
  // comes behind it. `workspace`: kProductWorkspaceBytes, and SeparateScratchBytes behind them.
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
