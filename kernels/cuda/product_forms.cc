#include "kernels/cuda/product_forms.h"

#include "common/base/math.h"
#include "kernels/cuda/gelu_grad_product.h"

namespace mt::kernels::cuda {
namespace {

constexpr int64_t kAlignment = 256;  // of a workspace's parts

// Column-major [m, n] as the rows that other ops see.
Tensor RowsOf(void* data, DType dtype, int64_t m, int64_t n) { return {data, dtype, {n, m}}; }

Tensor BiasGradOf(const ProductKey& key, void* data) { return {data, DType::kF32, {key.n}}; }

}  // namespace

int64_t BiasGradScratchBytes(int64_t columns) {
  return base::RoundUp(columns * SizeOf(DType::kF32), kAlignment);
}

void ProductForms::RunFused(Stream& stream, const ProductKey& key, const ProductOperands& operands,
                            const ProductAlgorithm& algorithm, const Workspace& workspace) const {
  if (key.epilogue != Epilogue::kBiasGrad || !key.add) {
    return products_->Run(stream, key, operands, algorithm, workspace);
  }
  CHECK_GE(workspace.bytes, kProductWorkspaceBytes + BiasGradScratchBytes(key.n));
  ProductOperands stored = operands;
  stored.bias = static_cast<char*>(workspace.data) + kProductWorkspaceBytes;
  products_->Run(stream, key, stored, algorithm, workspace);
  vector_->AddTo(stream, BiasGradOf(key, operands.bias), BiasGradOf(key, stored.bias));
}

void ProductForms::RunSeparate(Stream& stream, const ProductKey& key,
                               const ProductOperands& operands, const ProductAlgorithm& algorithm,
                               const Workspace& workspace) const {
  ProductOperands plain = operands;
  const Tensor aux = RowsOf(operands.aux, key.out, key.m, key.n);
  const Tensor d = RowsOf(operands.d, key.out, key.m, key.n);
  const bool act_behind =
      key.epilogue == Epilogue::kGeluAux || key.epilogue == Epilogue::kGeluAuxBias;
  if (act_behind) plain.d = operands.aux;
  products_->Run(stream, SeparateProductOf(key), plain, algorithm, workspace);
  if (act_behind) {
    act_->Act(stream, {.kind = ActKind::kGelu, .pre = aux, .y = d});
  } else if (key.epilogue == Epilogue::kGeluGrad) {
    act_->ActGrad(stream, {.kind = ActKind::kGelu, .dy = d, .pre = aux, .dpre = d});
  } else {
    CHECK(key.epilogue == Epilogue::kBiasGrad && !key.transpose_a && key.transpose_b);
    // B is dy, read transposed: rows of n columns. (RowSum only reads.)
    const Tensor dy = RowsOf(const_cast<void*>(operands.b), key.in, key.n, key.k);
    vector_->RowSum(stream, dy, key.add ? GradMode::kAdd : GradMode::kOverwrite,
                    BiasGradOf(key, operands.bias));
  }
}

bool ProductForms::HasOwn(const ProductKey& key) const {
  return HasGeluGradProduct(products_->limits(), key);
}

void ProductForms::RunOwn(const Stream& stream, const ProductKey& key,
                          const ProductOperands& operands, GradMode mode,
                          const Workspace& workspace) const {
  RunGeluGradProduct(stream, products_->limits(), key, operands, mode, workspace);
}

void ProductForms::SumBiasGrad(Stream& stream, const ProductKey& key,
                               const ProductOperands& operands, GradMode mode) const {
  vector_->RowSum(stream, RowsOf(operands.d, key.out, key.m, key.n), mode,
                  {operands.bias, DType::kF32, {key.m}});
}

}  // namespace mt::kernels::cuda
