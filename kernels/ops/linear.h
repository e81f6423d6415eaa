// Linear layers as GEMMs: y = x w^T + bias, with weights stored [n, k] (output features first), as
// Megatron-LM and PyTorch store them.
// Legend: T tokens, k input features, n output features.
//
// Operands are contiguous row-major matrices of one float type; gradients of parameters have its
// accumulator type and are summed in it. A row range (a chunk of tokens, a shard of a gathered
// input) is passed as x.Rows(begin, count) together with y.Rows(begin, count). Fused entries have
// default bodies over the primitives, and backends override what they fuse. Callers always call the
// fused entry.
//
// `workspace` must have at least Plan(args) bytes. `sm_budget` is the number of SMs that
// a GEMM may assume to be free while a communication kernel occupies the others (cuBLASLt's
// SM_COUNT_TARGET); 0 means all. The CPU ignores it.
#pragma once

#include "kernels/core/device.h"
#include "kernels/core/tensor.h"
#include "kernels/ops/act.h"
#include "kernels/ops/vector.h"

namespace mt::kernels {

// Rows of x that ForwardFewRows takes.
inline constexpr int64_t kMaxFewRows = 32;

// y = x w^T + bias.
struct LinearForwardArgs {
  Tensor x;     // [T, k]
  Tensor w;     // [n, k]
  Tensor bias;  // [n] or absent
  Tensor y;     // [T, n]
  Workspace workspace;
  int sm_budget = 0;
};

// pre = x w^T + bias, y = activation(pre): the first linear layer of the MLP (fc1). The activation
// reads pre as it was rounded.
struct LinearForwardActArgs {
  Tensor x;     // [T, k]
  Tensor w;     // [n, k]; for a gated activation [2n, k]: all gate rows, then all up rows
  Tensor bias;  // [n] (gated: [2n]), or absent
  ActKind act = ActKind::kGelu;
  Tensor pre;  // [T, n] (gated: [T, 2n]); written, kept for backward
  Tensor y;    // [T, n]
  Workspace workspace;
  int sm_budget = 0;
};

// dx = dy w.
struct LinearInputGradArgs {
  Tensor dy;  // [T, n]
  Tensor w;   // [n, k]
  Tensor dx;  // [T, k]
  Workspace workspace;
  int sm_budget = 0;
};

// dpre = (dy w) * activation'(pre): the input gradient of the MLP's second linear layer (fc2)
// through the activation before it.
struct LinearInputGradActArgs {
  Tensor dy;   // [T, n]
  Tensor w;    // [n, k]
  Tensor pre;  // [T, k] (gated: [T, 2k]): the activation's input, whose output was this layer's x
  ActKind act = ActKind::kGelu;
  Tensor dpre;                           // like pre
  GradMode mode = GradMode::kOverwrite;  // of dbias
  // Accumulator type [k] (gated: [2k]), or absent: column sums of dpre, which are the bias gradient
  // of the layer before the activation. That layer's WeightGrad is then called without dbias.
  Tensor dbias;
  Workspace workspace;
  int sm_budget = 0;
};

// dw = (mode kAdd: dw +) dy^T x, and likewise dbias.
struct LinearWeightGradArgs {
  Tensor dy;  // [T, n]
  Tensor x;   // [T, k]
  GradMode mode = GradMode::kOverwrite;
  Tensor dw;     // accumulator type [n, k]
  Tensor dbias;  // accumulator type [n]: column sums of dy, or absent
  Workspace workspace;
  int sm_budget = 0;
};

// Every entry enqueues work on `stream` and returns; it aborts (CHECK) on inconsistent shapes.
// Plan announces a call that will be made and returns the bytes of workspace that it needs. It
// reads shapes, dtypes and pointer alignment, never contents. On a GPU it registers the GEMM in the
// tuning table, so it must be called for every call of a step while the run is planned; a GEMM that
// was never registered is timed on its first call and cannot be recorded into a CUDA graph. The
// bytes do not depend on what the tuning table chooses later. Planning the same call again changes
// nothing.
class LinearOps {
 public:
  // Neither is owned; both must outlive this object.
  LinearOps(const ActOps* act, const VectorOps* vector) : act_(act), vector_(vector) {}
  virtual ~LinearOps() = default;
  virtual int64_t Plan(const LinearForwardArgs&) { return 0; }
  virtual int64_t Plan(const LinearForwardActArgs& args);
  virtual int64_t Plan(const LinearInputGradArgs&) { return 0; }
  virtual int64_t Plan(const LinearInputGradActArgs& args);
  virtual int64_t Plan(const LinearWeightGradArgs&) { return 0; }

  virtual void Forward(Stream& stream, const LinearForwardArgs& args) const = 0;
  // Forward of few rows, as decoding has them: x of 1 to kMaxFewRows rows. w is read once at the
  // memory's pace, and a row's result does not depend on the other rows of a call, to the bit; sums
  // have another order than Forward's. Needs no plan and no workspace. Default: Forward.
  virtual void ForwardFewRows(Stream& stream, const LinearForwardArgs& args) const {
    Forward(stream, args);
  }
  // Default: Forward into pre, then Act.
  virtual void ForwardAct(Stream& stream, const LinearForwardActArgs& args) const;
  virtual void InputGrad(Stream& stream, const LinearInputGradArgs& args) const = 0;
  // Default: InputGrad into dpre (for a gated activation into the workspace), then ActGrad, then
  // RowSum for dbias.
  virtual void InputGradAct(Stream& stream, const LinearInputGradActArgs& args) const;
  virtual void WeightGrad(Stream& stream, const LinearWeightGradArgs& args) const = 0;

 protected:
  const ActOps* act() const { return act_; }
  const VectorOps* vector() const { return vector_; }

 private:
  const ActOps* const act_;
  const VectorOps* const vector_;
};

}  // namespace mt::kernels
