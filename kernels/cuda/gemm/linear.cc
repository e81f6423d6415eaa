// Maps linear layers to column-major GEMMs: a row-major [rows, columns] matrix is cuBLASLt's
// column-major [columns, rows], so y = x w^T is computed as y^T [n, T] = w [n, k] x^T, and likewise
// for the gradients.
#include "kernels/cuda/gemm/linear.h"

#include <algorithm>

#include "kernels/cuda/decode/decode.h"
#include "kernels/cuda/device/rows.h"
#include "kernels/cuda/gemm/custom_gemm.h"

namespace mt::kernels::cuda {
namespace {

// Returns the bytes, at most 16, of which all pointers are multiples. While planning all pointers
// are null: 16.
template <class... Pointers>
int AlignmentOf(Pointers... pointers) {
  const uintptr_t all = (reinterpret_cast<uintptr_t>(pointers) | ... | uintptr_t{16});
  return static_cast<int>(all & (~all + 1));
}

void CheckShapes(const Tensor& tokens_by_n, const Tensor& n_by_k, const Tensor& tokens_by_k) {
  CHECK_EQ(tokens_by_n.shape[0], tokens_by_k.shape[0]);
  CHECK_EQ(tokens_by_n.shape[1], n_by_k.shape[0]);
  CHECK_EQ(tokens_by_k.shape[1], n_by_k.shape[1]);
}

// cuBLASLt has only its oldest kernels for rows that are not whole 16-byte vectors, and they round
// before they add the bias. In that case the rows of y are filled with the bias first and the
// GEMM is added to them.
bool BiasFirst(const LinearForwardArgs& a) {
  return a.bias && SizeOf(a.y.dtype) == 2 &&
         (a.y.shape[1] % 8 != 0 || a.x.shape[1] % 8 != 0 ||
          AlignmentOf(a.x.data, a.w.data, a.y.data, a.bias.data) < 16);
}

GemmKey KeyOf(const LinearForwardArgs& a) {
  return {.transpose_a = true,
          .m = a.y.shape[1],
          .n = a.y.shape[0],
          .k = a.x.shape[1],
          .in = a.x.dtype,
          .out = a.y.dtype,
          .epilogue = a.bias && !BiasFirst(a) ? Epilogue::kBias : Epilogue::kNone,
          .add = BiasFirst(a),
          .alignment = AlignmentOf(a.x.data, a.w.data, a.y.data, a.bias.data),
          .sms = a.sm_budget};
}

GemmKey KeyOf(const LinearInputGradArgs& a) {
  return {.m = a.dx.shape[1],
          .n = a.dx.shape[0],
          .k = a.dy.shape[1],
          .in = a.dy.dtype,
          .out = a.dx.dtype,
          .alignment = AlignmentOf(a.dy.data, a.w.data, a.dx.data),
          .sms = a.sm_budget};
}

// The GEMM; the bias gradient is a RowSum behind it.
GemmKey KeyOf(const LinearWeightGradArgs& a) {
  return {.transpose_b = true,
          .m = a.dw.shape[1],
          .n = a.dw.shape[0],
          .k = a.dy.shape[0],
          .in = a.dy.dtype,
          .out = DType::kF32,
          .add = a.mode == GradMode::kAdd,
          .alignment = AlignmentOf(a.dy.data, a.x.data, a.dw.data),
          .sms = a.sm_budget};
}

// The GEMM with this epilogue, which reads or writes one more operand.
GemmKey With(Epilogue epilogue, GemmKey key, const Tensor& operand) {
  key.epilogue = epilogue;
  key.alignment = std::min(key.alignment, AlignmentOf(operand.data));
  return key;
}

GemmKey FusedKeyOf(const LinearForwardActArgs& a) {
  const LinearForwardArgs gemm{
      .x = a.x, .w = a.w, .bias = a.bias, .y = a.pre, .workspace = {}, .sm_budget = a.sm_budget};
  const Epilogue gelu = a.bias ? Epilogue::kGeluAuxBias : Epilogue::kGeluAux;
  return With(IsGated(a.act) ? Epilogue::kSwigluAux : gelu, KeyOf(gemm), a.y);
}

GemmKey FusedKeyOf(const LinearInputGradActArgs& a) {
  const LinearInputGradArgs gemm{.dy = a.dy,
                                 .w = a.w,
                                 .dx = {a.dpre.data, a.dpre.dtype, {a.dy.shape[0], a.w.shape[1]}},
                                 .workspace = {},
                                 .sm_budget = a.sm_budget};
  const Epilogue gelu = a.dbias ? Epilogue::kGeluGradBias : Epilogue::kGeluGrad;
  return With(IsGated(a.act) ? Epilogue::kSwigluGrad : gelu, KeyOf(gemm), a.pre);
}

// Returns whether any implementation, cuBLASLt's or custom, has a fused epilogue: for 16-bit
// operands whose rows are whole vectors. (In all other cases the default bodies run.)
bool MayFuse(const GemmKey& key) {
  const int64_t rows_of_a = key.transpose_a ? key.k : key.m,
                rows_of_b = key.transpose_b ? key.n : key.k;
  return SizeOf(key.in) == 2 && key.alignment == 16 && key.m % 8 == 0 && rows_of_a % 8 == 0 &&
         rows_of_b % 8 == 0;
}
bool MayFuse(const LinearForwardActArgs& a) {
  const bool act = a.act == ActKind::kGelu || (a.act == ActKind::kSwiglu && !a.bias);
  return act && MayFuse(FusedKeyOf(a));
}
bool MayFuse(const LinearInputGradActArgs& a) {
  const bool act = a.act == ActKind::kGelu || (a.act == ActKind::kSwiglu && !a.dbias);
  return act && MayFuse(FusedKeyOf(a));
}

}  // namespace

int64_t CudaLinear::Plan(const LinearForwardArgs& a) {
  table_->Plan(KeyOf(a));
  return kGemmWorkspaceBytes;
}

int64_t CudaLinear::Plan(const LinearForwardActArgs& a) {
  if (!MayFuse(a)) return LinearOps::Plan(a);
  table_->Plan(FusedKeyOf(a));
  return kGemmWorkspaceBytes;
}

int64_t CudaLinear::Plan(const LinearInputGradArgs& a) {
  table_->Plan(KeyOf(a));
  return kGemmWorkspaceBytes;
}

int64_t CudaLinear::Plan(const LinearInputGradActArgs& a) {
  if (!MayFuse(a)) return LinearOps::Plan(a);
  const GemmKey key = FusedKeyOf(a);
  table_->Plan(key);
  return std::max(kGemmWorkspaceBytes + SeparateScratchBytes(key), CustomGemmScratchBytes(key));
}

int64_t CudaLinear::Plan(const LinearWeightGradArgs& a) {
  LinearWeightGradArgs planned = a;
  for (const GradMode mode : {GradMode::kOverwrite, GradMode::kAdd}) {
    planned.mode = mode;
    table_->Plan(KeyOf(planned));
  }
  return kGemmWorkspaceBytes;
}

void CudaLinear::Forward(Stream& stream, const LinearForwardArgs& a) const {
  CheckShapes(a.y, a.w, a.x);
  if (a.bias) CHECK_EQ(a.bias.NumElements(), a.y.shape[1]);
  CHECK_GE(a.workspace.bytes, kGemmWorkspaceBytes);
  if (BiasFirst(a)) FillRows(stream, a.bias, a.y);
  table_->Run(stream, KeyOf(a), {.a = a.w.data, .b = a.x.data, .d = a.y.data, .bias = a.bias.data},
              a.workspace);
}

void CudaLinear::ForwardFewRows(Stream& stream, const LinearForwardArgs& a) const {
  CheckShapes(a.y, a.w, a.x);
  CHECK(a.x.shape[0] >= 1 && a.x.shape[0] <= kMaxFewRows) << a.x.shape[0] << " rows";
  if (a.bias) CHECK_EQ(a.bias.NumElements(), a.y.shape[1]);
  LaunchFewRows(stream, a);
}

void CudaLinear::ForwardAct(Stream& stream, const LinearForwardActArgs& a) const {
  if (!MayFuse(a)) return LinearOps::ForwardAct(stream, a);
  CheckShapes(a.pre, a.w, a.x);
  CHECK_EQ(PreColumns(a.act, a.y.NumElements()), a.pre.NumElements());
  CHECK_GE(a.workspace.bytes, kGemmWorkspaceBytes);
  table_->Run(stream, FusedKeyOf(a),
              {.a = a.w.data, .b = a.x.data, .d = a.y.data, .bias = a.bias.data, .aux = a.pre.data},
              a.workspace);
}

void CudaLinear::InputGrad(Stream& stream, const LinearInputGradArgs& a) const {
  CheckShapes(a.dy, a.w, a.dx);
  CHECK_GE(a.workspace.bytes, kGemmWorkspaceBytes);
  table_->Run(stream, KeyOf(a), {.a = a.w.data, .b = a.dy.data, .d = a.dx.data}, a.workspace);
}

void CudaLinear::InputGradAct(Stream& stream, const LinearInputGradActArgs& a) const {
  if (!MayFuse(a)) return LinearOps::InputGradAct(stream, a);
  CHECK_EQ(a.dy.shape[1], a.w.shape[0]);
  CHECK(a.dpre.shape[0] == a.dy.shape[0] && a.dpre.shape[1] == PreColumns(a.act, a.w.shape[1]));
  CHECK_EQ(a.dpre.NumElements(), a.pre.NumElements());
  if (a.dbias) CHECK_EQ(a.dbias.NumElements(), a.dpre.shape[1]);
  CHECK_GE(a.workspace.bytes, kGemmWorkspaceBytes);
  table_->Run(
      stream, FusedKeyOf(a),
      {.a = a.w.data, .b = a.dy.data, .d = a.dpre.data, .bias = a.dbias.data, .aux = a.pre.data},
      a.workspace, a.mode);
}

void CudaLinear::WeightGrad(Stream& stream, const LinearWeightGradArgs& a) const {
  CheckShapes(a.dy, a.dw, a.x);
  CHECK(a.dw.dtype == DType::kF32) << "weight gradients are f32 on a GPU";
  if (a.dbias) CHECK_EQ(a.dbias.NumElements(), a.dy.shape[1]);
  CHECK_GE(a.workspace.bytes, kGemmWorkspaceBytes);
  table_->Run(stream, KeyOf(a), {.a = a.x.data, .b = a.dy.data, .d = a.dw.data}, a.workspace);
  if (a.dbias) vector()->RowSum(stream, a.dy, a.mode, a.dbias);
}

}  // namespace mt::kernels::cuda
