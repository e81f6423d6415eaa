// The separate kernels behind a GEMM are the backend's own Act, ActGrad, RowSum and AddTo, called
// on the GEMM's operands as row-major tensors.
#include "kernels/cuda/product/product_forms.h"

#include "common/base/math.h"
#include "kernels/cuda/product/own_product.h"

namespace mt::kernels::cuda {
namespace {

constexpr int64_t kAlignment = 256;  // bytes, of the parts of a workspace

// A column-major [m, n] matrix as the row-major tensor [n, m] that other ops take.
Tensor RowsOf(void* data, DType dtype, int64_t m, int64_t n) { return {data, dtype, {n, m}}; }

Tensor BiasGradOf(const ProductKey& key, void* data) { return {data, DType::kF32, {key.n}}; }

bool ActsBehind(Epilogue e) {
  return e == Epilogue::kGeluAux || e == Epilogue::kGeluAuxBias || e == Epilogue::kSwigluAux;
}

void* Scratch(const Workspace& workspace) {
  return static_cast<char*>(workspace.data) + kProductWorkspaceBytes;
}

}  // namespace

int64_t BiasGradScratchBytes(int64_t columns) {
  return base::RoundUp(columns * SizeOf(DType::kF32), kAlignment);
}

int64_t SeparateScratchBytes(const ProductKey& key) {
  if (key.epilogue != Epilogue::kSwigluGrad) return 0;
  return base::RoundUp(key.m * key.n * SizeOf(key.out), kAlignment);
}

bool ProductForms::HasOwn(const ProductKey& key) const {
  return HasOwnProduct(products_->limits(), key);
}

void ProductForms::RunOwn(const Stream& stream, const ProductKey& key,
                          const ProductOperands& operands, GradMode bias_mode,
                          const Workspace& workspace) const {
  RunOwnProduct(stream, products_->limits(), key, operands, bias_mode, workspace);
}

void ProductForms::RunFused(Stream& stream, const ProductKey& key, const ProductOperands& operands,
                            const ProductAlgorithm& algorithm, const Workspace& workspace) const {
  if (key.epilogue != Epilogue::kBiasGrad || !key.add) {
    return products_->Run(stream, key, operands, algorithm, workspace);
  }
  CHECK_GE(workspace.bytes, kProductWorkspaceBytes + BiasGradScratchBytes(key.n));
  ProductOperands stored = operands;
  stored.bias = Scratch(workspace);
  products_->Run(stream, key, stored, algorithm, workspace);
  vector_->AddTo(stream, BiasGradOf(key, operands.bias), BiasGradOf(key, stored.bias));
}

ProductOperands ProductForms::SeparateOperands(const ProductKey& key,
                                               const ProductOperands& operands,
                                               const Workspace& workspace) {
  ProductOperands plain = operands;
  if (ActsBehind(key.epilogue)) plain.d = operands.aux;
  if (key.epilogue == Epilogue::kSwigluGrad) plain.d = Scratch(workspace);
  return plain;
}

void ProductForms::FinishSeparate(Stream& stream, const ProductKey& key,
                                  const ProductOperands& operands, const Workspace& workspace,
                                  GradMode bias_mode) const {
  const auto rows = [&](void* data, int64_t m) { return RowsOf(data, key.out, m, key.n); };
  const Tensor aux = rows(operands.aux, key.m), d = rows(operands.d, key.m);
  if (key.epilogue == Epilogue::kSwigluAux) {
    act_->Act(stream, {.kind = ActKind::kSwiglu, .pre = aux, .y = rows(operands.d, key.m / 2)});
  } else if (key.epilogue == Epilogue::kSwigluGrad) {
    CHECK_GE(workspace.bytes, kProductWorkspaceBytes + SeparateScratchBytes(key));
    act_->ActGrad(stream, {.kind = ActKind::kSwiglu,
                           .dy = rows(Scratch(workspace), key.m),
                           .pre = rows(operands.aux, 2 * key.m),
                           .dpre = rows(operands.d, 2 * key.m)});
  } else if (ActsBehind(key.epilogue)) {
    act_->Act(stream, {.kind = ActKind::kGelu, .pre = aux, .y = d});
  } else if (key.epilogue == Epilogue::kGeluGrad) {
    act_->ActGrad(stream, {.kind = ActKind::kGelu, .dy = d, .pre = aux, .dpre = d});
  } else if (key.epilogue == Epilogue::kGeluGradBias) {
    vector_->RowSum(stream, d, bias_mode, {operands.bias, DType::kF32, {key.m}});
  } else {
    CHECK(key.epilogue == Epilogue::kBiasGrad && !key.transpose_a && key.transpose_b);
    // B is dy, read transposed: rows of n columns. (RowSum only reads it.)
    const Tensor dy = RowsOf(const_cast<void*>(operands.b), key.in, key.n, key.k);
    vector_->RowSum(stream, dy, key.add ? GradMode::kAdd : GradMode::kOverwrite,
                    BiasGradOf(key, operands.bias));
  }
}

}  // namespace mt::kernels::cuda
