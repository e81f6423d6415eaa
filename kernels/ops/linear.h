// Matrix products of linear layers: y = x w^T + bias with weights stored [n, k] (output features
// first), as Megatron and PyTorch store them. Fused entries have default bodies over the
// primitives; backends override what they fuse. Callers always call the fused entry. A range of
// rows (a chunk of tokens, a shard of a gathered input) is x.Rows(begin, count) with y.Rows alike:
// every entry works on rows that lie one after another. `sm_budget` is how many of the device's
// multiprocessors a product may count on, where a kernel that communicates holds the others; 0:
// all. The CPU has no use for it. Legend: T tokens, k inputs, n outputs.
#pragma once

#include "kernels/core/device.h"
#include "kernels/core/tensor.h"
#include "kernels/ops/act.h"
#include "kernels/ops/vector.h"

namespace mt::kernels {

struct LinearForwardArgs {
  Tensor x;     // [T, k]
  Tensor w;     // [n, k]
  Tensor bias;  // [n] or absent
  Tensor y;     // [T, n]
  Workspace workspace;
  int sm_budget = 0;
};

struct LinearForwardActArgs {
  Tensor x;     // [T, k]
  Tensor w;     // [n, k]; of a gated activation [2n, k], all gate rows, then all up rows
  Tensor bias;  // [n], or [2n]; or absent
  ActKind act = ActKind::kGelu;
  Tensor pre;  // [T, n], or [T, 2n]; kept for backward
  Tensor y;    // [T, n]
  Workspace workspace;
  int sm_budget = 0;
};

struct LinearInputGradArgs {
  Tensor dy;  // [T, n]
  Tensor w;   // [n, k]
  Tensor dx;  // [T, k]
  Workspace workspace;
  int sm_budget = 0;
};

struct LinearInputGradActArgs {
  Tensor dy;   // [T, n]
  Tensor w;    // [n, k]
  Tensor pre;  // [T, k], or [T, 2k]: input of the activation whose output was this product's x
  ActKind act = ActKind::kGelu;
  Tensor dpre;                           // like pre
  GradMode mode = GradMode::kOverwrite;  // of dbias
  // Accumulator type [k], or [2k]: column sums of dpre, the bias gradient of the product in front
  // of the activation (whose WeightGrad then has none); or absent.
  Tensor dbias;
  Workspace workspace;
  int sm_budget = 0;
};

struct LinearWeightGradArgs {
  Tensor dy;  // [T, n]
  Tensor x;   // [T, k]
  GradMode mode = GradMode::kOverwrite;
  Tensor dw;     // accumulator type [n, k]
  Tensor dbias;  // accumulator type [n]: column sums of dy; or absent
  Workspace workspace;
  int sm_budget = 0;
};

class LinearOps {
 public:
  // Both outlive this.
  LinearOps(const ActOps* act, const VectorOps* vector) : act_(act), vector_(vector) {}
  virtual ~LinearOps() = default;
  virtual int64_t WorkspaceBytes(const LinearForwardArgs&) const { return 0; }
  virtual int64_t WorkspaceBytes(const LinearForwardActArgs& args) const;
  virtual int64_t WorkspaceBytes(const LinearInputGradArgs&) const { return 0; }
  virtual int64_t WorkspaceBytes(const LinearInputGradActArgs& args) const;
  virtual int64_t WorkspaceBytes(const LinearWeightGradArgs&) const { return 0; }

  virtual void Forward(Stream& stream, const LinearForwardArgs& args) const = 0;
  // Default: Forward into pre, then Act.
  virtual void ForwardAct(Stream& stream, const LinearForwardActArgs& args) const;
  virtual void InputGrad(Stream& stream, const LinearInputGradArgs& args) const = 0;
  // Default: InputGrad into dpre (of a gated activation into the workspace), ActGrad, RowSum.
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
