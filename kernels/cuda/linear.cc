// Row-major [rows, columns] is cuBLASLt's column-major [columns, rows], so y = x w^T reads
// y^T [n, T] = w [n, k] x^T, and so on.
#include "kernels/cuda/linear.h"

#include <algorithm>

#include "kernels/cuda/rows.h"

namespace mt::kernels::cuda {
namespace {

// Bytes, at most 16, that all pointers are multiples of; planning has none yet.
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

// Rows that are no whole vectors get cuBLASLt's oldest kernels, which round before they add the
// bias. There the rows are filled with it first and the product is added to them.
bool BiasFirst(const LinearForwardArgs& a) {
  return a.bias && SizeOf(a.y.dtype) == 2 &&
         (a.y.shape[1] % 8 != 0 || a.x.shape[1] % 8 != 0 ||
          AlignmentOf(a.x.data, a.w.data, a.y.data, a.bias.data) < 16);
}

ProductKey KeyOf(const LinearForwardArgs& a) {
  return {.transpose_a = true,
          .m = a.y.shape[1],
          .n = a.y.shape[0],
          .k = a.x.shape[1],
          .in = a.x.dtype,
          .out = a.y.dtype,
          .epilogue = a.bias && !BiasFirst(a) ? Epilogue::kBias : Epilogue::kNone,
          .add = BiasFirst(a),
          .alignment = AlignmentOf(a.x.data, a.w.data, a.y.data, a.bias.data)};
}

ProductKey KeyOf(const LinearInputGradArgs& a) {
  return {.m = a.dx.shape[1],
          .n = a.dx.shape[0],
          .k = a.dy.shape[1],
          .in = a.dy.dtype,
          .out = a.dx.dtype,
          .alignment = AlignmentOf(a.dy.data, a.w.data, a.dx.data)};
}

ProductKey KeyOf(const LinearWeightGradArgs& a) {
  return {.transpose_b = true,
          .m = a.dw.shape[1],
          .n = a.dw.shape[0],
          .k = a.dy.shape[0],
          .in = a.dy.dtype,
          .out = DType::kF32,
          .add = a.mode == GradMode::kAdd,
          .alignment = AlignmentOf(a.dy.data, a.x.data, a.dw.data)};
}

LinearForwardArgs Primitive(const LinearForwardActArgs& a) {
  return {.x = a.x, .w = a.w, .bias = a.bias, .y = a.pre, .workspace = a.workspace};
}

LinearInputGradArgs Primitive(const LinearInputGradActArgs& a) {
  return {.dy = a.dy, .w = a.w, .dx = a.dpre, .workspace = a.workspace};
}

ProductKey FusedKeyOf(const LinearForwardActArgs& a) {
  ProductKey key = KeyOf(Primitive(a));
  key.epilogue = a.bias ? Epilogue::kGeluAuxBias : Epilogue::kGeluAux;
  key.alignment = std::min(key.alignment, AlignmentOf(a.y.data));
  return key;
}

ProductKey FusedKeyOf(const LinearInputGradActArgs& a) {
  ProductKey key = KeyOf(Primitive(a));
  key.epilogue = Epilogue::kGeluGrad;
  key.alignment = std::min(key.alignment, AlignmentOf(a.pre.data));
  return key;
}

// Shapes for which cuBLASLt has GELU epilogues at all: 16-bit types, aux rows of whole vectors.
bool MayFuse(ActKind act, DType dtype, int64_t columns) {
  return act == ActKind::kGelu && SizeOf(dtype) == 2 && columns % 8 == 0;
}

}  // namespace

// Whether one call with epilogue beats the product followed by the activation's kernel.
bool CudaLinear::Fuses(const LinearForwardActArgs& a) const {
  if (!MayFuse(a.act, a.x.dtype, a.y.shape[1])) return false;
  const ProductKey key = FusedKeyOf(a);
  const int known = table_->Remembered(key);
  if (known >= 0) return known != 0;
  const ProductChoice& fused = table_->Choose(key);
  if (!fused.possible) return table_->Remember(key, false);
  const ProductChoice& plain = table_->Choose(KeyOf(Primitive(a)));
  TuningRun run(table_->limits());
  const int64_t elements = a.y.NumElements();
  const Tensor pre{run.Random(a.y.dtype, elements), a.y.dtype, a.y.shape};
  const Tensor y{run.Random(a.y.dtype, elements), a.y.dtype, a.y.shape};
  const double act_us =
      run.MedianUs(9, [&] { act()->Act(run.stream(), {.kind = a.act, .pre = pre, .y = y}); });
  return table_->Remember(key, fused.us < plain.us + act_us);
}

bool CudaLinear::Fuses(const LinearInputGradActArgs& a) const {
  if (!MayFuse(a.act, a.dy.dtype, a.pre.shape[1])) return false;
  const ProductKey key = FusedKeyOf(a);
  const int known = table_->Remembered(key);
  if (known >= 0) return known != 0;
  const ProductChoice& fused = table_->Choose(key);
  if (!fused.possible) return table_->Remember(key, false);
  const ProductChoice& plain = table_->Choose(KeyOf(Primitive(a)));
  TuningRun run(table_->limits());
  const int64_t elements = a.pre.NumElements();
  const Tensor pre{run.Random(a.pre.dtype, elements), a.pre.dtype, a.pre.shape};
  const Tensor dpre{run.Random(a.pre.dtype, elements), a.pre.dtype, a.pre.shape};
  const double act_us = run.MedianUs(9, [&] {
    act()->ActGrad(run.stream(), {.kind = a.act, .dy = dpre, .pre = pre, .dpre = dpre});
  });
  return table_->Remember(key, fused.us < plain.us + act_us);
}

int64_t CudaLinear::WorkspaceBytes(const LinearForwardArgs& a) const {
  table_->Choose(KeyOf(a));
  return kProductWorkspaceBytes;
}

int64_t CudaLinear::WorkspaceBytes(const LinearForwardActArgs& a) const {
  return Fuses(a) ? kProductWorkspaceBytes : LinearOps::WorkspaceBytes(a);
}

int64_t CudaLinear::WorkspaceBytes(const LinearInputGradArgs& a) const {
  table_->Choose(KeyOf(a));
  return kProductWorkspaceBytes;
}

int64_t CudaLinear::WorkspaceBytes(const LinearInputGradActArgs& a) const {
  return Fuses(a) ? kProductWorkspaceBytes : LinearOps::WorkspaceBytes(a);
}

int64_t CudaLinear::WorkspaceBytes(const LinearWeightGradArgs& a) const {
  table_->Choose(KeyOf(a));
  return kProductWorkspaceBytes;
}

void CudaLinear::Forward(Stream& stream, const LinearForwardArgs& a) const {
  CheckShapes(a.y, a.w, a.x);
  if (a.bias) CHECK_EQ(a.bias.NumElements(), a.y.shape[1]);
  CHECK_GE(a.workspace.bytes, kProductWorkspaceBytes);
  if (BiasFirst(a)) FillRows(stream, a.bias, a.y);
  table_->Run(stream, KeyOf(a), {.a = a.w.data, .b = a.x.data, .d = a.y.data, .bias = a.bias.data},
              a.workspace);
}

void CudaLinear::ForwardAct(Stream& stream, const LinearForwardActArgs& a) const {
  if (!Fuses(a)) return LinearOps::ForwardAct(stream, a);
  CheckShapes(a.pre, a.w, a.x);
  CHECK_EQ(a.y.NumElements(), a.pre.NumElements());
  CHECK_GE(a.workspace.bytes, kProductWorkspaceBytes);
  table_->Run(stream, FusedKeyOf(a),
              {.a = a.w.data, .b = a.x.data, .d = a.y.data, .bias = a.bias.data, .aux = a.pre.data},
              a.workspace);
}

void CudaLinear::InputGrad(Stream& stream, const LinearInputGradArgs& a) const {
  CheckShapes(a.dy, a.w, a.dx);
  CHECK_GE(a.workspace.bytes, kProductWorkspaceBytes);
  table_->Run(stream, KeyOf(a), {.a = a.w.data, .b = a.dy.data, .d = a.dx.data}, a.workspace);
}

void CudaLinear::InputGradAct(Stream& stream, const LinearInputGradActArgs& a) const {
  if (!Fuses(a)) return LinearOps::InputGradAct(stream, a);
  CheckShapes(a.dy, a.w, a.dpre);
  CHECK_EQ(a.dpre.NumElements(), a.pre.NumElements());
  CHECK_GE(a.workspace.bytes, kProductWorkspaceBytes);
  table_->Run(stream, FusedKeyOf(a),
              {.a = a.w.data, .b = a.dy.data, .d = a.dpre.data, .aux = a.pre.data}, a.workspace);
}

void CudaLinear::WeightGrad(Stream& stream, const LinearWeightGradArgs& a) const {
  CheckShapes(a.dy, a.dw, a.x);
  CHECK(a.dw.dtype == DType::kF32) << "weight gradients are f32 on a GPU";
  CHECK_GE(a.workspace.bytes, kProductWorkspaceBytes);
  table_->Run(stream, KeyOf(a), {.a = a.x.data, .b = a.dy.data, .d = a.dw.data}, a.workspace);
  if (!a.dbias) return;
  CHECK_EQ(a.dbias.NumElements(), a.dy.shape[1]);
  vector_->RowSum(stream, a.dy, a.mode, a.dbias);
}

}  // namespace mt::kernels::cuda
