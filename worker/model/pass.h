// What a forward or backward of one microbatch carries through all blocks, and what planning
// carries instead. A plain value, made per call.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "kernels/ops/backend.h"
#include "worker/memory/stack_arena.h"
#include "worker/model/batch.h"
#include "worker/model/position_tables.h"
#include "worker/parallel/tensor_parallel.h"
#include "worker/params/registry.h"

namespace mt::model {

struct Pass {
  kernels::Backend* backend = nullptr;
  kernels::Stream* stream = nullptr;
  parallel::TensorParallel* tensor = nullptr;  // nullptr: no other rank shares the matrices
  const BatchView* batch = nullptr;
  const PositionTables* tables = nullptr;
  kernels::GradMode mode = kernels::GradMode::kOverwrite;
  bool training = true;  // false: evaluation, no dropout and no gradient
  kernels::Workspace workspace;
  // In a step's last microbatch: called after the last write of each parameter's gradient.
  const std::function<void(params::ParamId)>* gradient_done = nullptr;

  void Done(params::ParamId id) const {
    if (gradient_done != nullptr && id != params::ParamId::kNone) (*gradient_done)(id);
  }
  // All ranks' rows [T, h] of `part` [R, h]: in `whole`, or, where the rows are not cut, `part`.
  kernels::Tensor Gather(const kernels::Tensor& part, const kernels::Tensor& whole) const {
    return tensor == nullptr ? part : tensor->Gather(*stream, part, whole);
  }
  // This rank's rows [R, h] of the sum over ranks of `whole` [T, h], written into `whole`.
  kernels::Tensor Reduce(const kernels::Tensor& whole) const {
    return tensor == nullptr ? whole : tensor->Reduce(*stream, whole, OwnRows(whole));
  }
  kernels::Tensor OwnRows(const kernels::Tensor& whole) const {
    if (tensor == nullptr || !tensor->sequence_parallel()) return whole;
    const int64_t rows = whole.shape[0] / tensor->size();
    return whole.Rows(tensor->rank() * rows, rows);
  }
};

// Scratch is taken from `arena` once when the model is planned (measuring) and once when it is
// bound, by the same calls; blocks that never live at the same time take the same bytes. The
// workspace of all ops is one, as large as the largest. Backends choose algorithms when they are
// asked for workspaces, so every product and attention of steps and evaluations is asked for, in
// each of its forms.
struct ScratchPlan {
  memory::StackArena* arena = nullptr;
  const Pass* pass = nullptr;  // shapes only
  bool accumulates = true;     // gradients of matrices are added to, not only overwritten
  int64_t workspace_bytes = 0;

  void NeedWorkspace(int64_t bytes) { workspace_bytes = std::max(workspace_bytes, bytes); }
};

// A tensor of this shape that is present but must not be read or written: operands of planning.
inline kernels::Tensor Placeholder(kernels::DType dtype, const kernels::Shape& shape) {
  alignas(memory::kAlignBytes) static char byte;
  return {&byte, dtype, shape};
}

}  // namespace mt::model
