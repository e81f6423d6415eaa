// The separate kernels behind a GEMM are the backend's own Act, ActGrad and RowSum, called
// on the GEMM's operands as row-major tensors.
#include "kernels/cuda/gemm/gemm_forms.h"

#include "common/base/math.h"
#include "kernels/cuda/gemm/custom_gemm.h"

namespace mt::kernels::cuda {
namespace {

constexpr int64_t kAlignment = 256;  // bytes, of the parts of a workspace

// A column-major [m, n] matrix as the row-major tensor [n, m] that other ops take.
Tensor RowsOf(void* data, DType dtype, int64_t m, int64_t n) { return {data, dtype, {n, m}}; }

bool ActsBehind(Epilogue e) {
  return e == Epilogue::kGeluAux || e == Epilogue::kGeluAuxBias || e == Epilogue::kSwigluAux;
}

void* Scratch(const Workspace& workspace) {
  return static_cast<char*>(workspace.data) + kGemmWorkspaceBytes;
}

}  // namespace

int64_t SeparateScratchBytes(const GemmKey& key) {
  if (key.epilogue != Epilogue::kSwigluGrad) return 0;
  return base::RoundUp(key.m * key.n * SizeOf(key.out), kAlignment);
}

bool GemmForms::HasCustom(const GemmKey& key) const {
  return HasCustomGemm(cublas_->limits(), key);
}

void GemmForms::RunCustom(const Stream& stream, const GemmKey& key, const GemmOperands& operands,
                          GradMode bias_mode, const Workspace& workspace) const {
  RunCustomGemm(stream, cublas_->limits(), key, operands, bias_mode, workspace);
}

GemmOperands GemmForms::SeparateOperands(const GemmKey& key, const GemmOperands& operands,
                                         const Workspace& workspace) {
  GemmOperands plain = operands;
  if (ActsBehind(key.epilogue)) plain.d = operands.aux;
  if (key.epilogue == Epilogue::kSwigluGrad) plain.d = Scratch(workspace);
  return plain;
}

void GemmForms::FinishSeparate(Stream& stream, const GemmKey& key, const GemmOperands& operands,
                               const Workspace& workspace, GradMode bias_mode) const {
  const auto rows = [&](void* data, int64_t m) { return RowsOf(data, key.out, m, key.n); };
  const Tensor aux = rows(operands.aux, key.m), d = rows(operands.d, key.m);
  if (key.epilogue == Epilogue::kSwigluAux) {
    act_->Act(stream, {.kind = ActKind::kSwiglu, .pre = aux, .y = rows(operands.d, key.m / 2)});
  } else if (key.epilogue == Epilogue::kSwigluGrad) {
    CHECK_GE(workspace.bytes, kGemmWorkspaceBytes + SeparateScratchBytes(key));
    act_->ActGrad(stream, {.kind = ActKind::kSwiglu,
                           .dy = rows(Scratch(workspace), key.m),
                           .pre = rows(operands.aux, 2 * key.m),
                           .dpre = rows(operands.d, 2 * key.m)});
  } else if (ActsBehind(key.epilogue)) {
    act_->Act(stream, {.kind = ActKind::kGelu, .pre = aux, .y = d});
  } else if (key.epilogue == Epilogue::kGeluGrad) {
    act_->ActGrad(stream, {.kind = ActKind::kGelu, .dy = d, .pre = aux, .dpre = d});
  } else {
    CHECK(key.epilogue == Epilogue::kGeluGradBias);
    vector_->RowSum(stream, d, bias_mode, {operands.bias, DType::kF32, {key.m}});
  }
}

}  // namespace mt::kernels::cuda
