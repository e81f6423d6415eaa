// The context that a forward or backward of one microbatch passes to all blocks (Pass), and the one
// that planning passes instead (ScratchPlan). Plain values, made per call.
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

// A gather or reduction over tensor ranks that was begun; of a single rank, or where there is
// nothing to communicate, its result alone.
using PendingCollective = parallel::TensorParallel::Pending;

// Pointers are not owned.
struct Pass {
  kernels::Backend* backend = nullptr;
  kernels::Stream* stream = nullptr;
  parallel::TensorParallel* tensor = nullptr;  // nullptr: no tensor parallelism
  const BatchView* batch = nullptr;
  const PositionTables* tables = nullptr;
  kernels::GradMode mode = kernels::GradMode::kOverwrite;
  bool training = true;          // false: evaluation, without dropout and gradients
  kernels::Workspace workspace;  // shared by all ops
  // Set in a step's last microbatch: called after the last write to each parameter's gradient.
  const std::function<void(params::ParamId)>* gradient_done = nullptr;

  // Set in a step's first microbatch where weights come layer by layer: called before a layer's
  // weights are read, with its number; the head comes behind the last layer.
  const std::function<void(int layer)>* layer_begins = nullptr;

  void BeginLayer(int64_t layer) const {
    if (layer_begins != nullptr) (*layer_begins)(static_cast<int>(layer));
  }
  // Reports a parameter's gradient as final; does nothing for kNone.
  void Done(params::ParamId id) const {
    if (gradient_done != nullptr && id != params::ParamId::kNone) (*gradient_done)(id);
  }
  // Gathers all ranks' rows of `part` [R, h]. Returns `whole` [T, h] under sequence parallelism,
  // else `part`.
  kernels::Tensor Gather(const kernels::Tensor& part, const kernels::Tensor& whole) const {
    return tensor == nullptr ? part : tensor->Gather(*stream, part, whole);
  }
  // Sums `whole` [T, h] over tensor ranks and returns this rank's rows of it, or the terms of their
  // sum, each [R, h].
  kernels::Partials Reduce(const kernels::Tensor& whole) const {
    if (tensor == nullptr) return kernels::Partials(whole);
    return tensor->Reduce(*stream, whole, OwnRows(whole));
  }
  // Both in two halves, between which what runs on the stream may run beside them
  // (parallel/tensor_parallel.h).
  [[nodiscard]] PendingCollective StartGather(const kernels::Tensor& part,
                                              const kernels::Tensor& whole) const {
    if (tensor == nullptr) return {.result = part};
    return tensor->StartGather(*stream, part, whole);
  }
  [[nodiscard]] PendingCollective StartReduce(const kernels::Tensor& whole) const {
    if (tensor == nullptr) return {.sum = kernels::Partials(whole)};
    return tensor->StartReduce(*stream, whole, OwnRows(whole));
  }
  kernels::Tensor Finish(const PendingCollective& pending) const {
    return tensor == nullptr ? pending.result : tensor->Finish(*stream, pending);
  }
  kernels::Partials FinishSum(const PendingCollective& pending) const {
    return tensor == nullptr ? pending.sum : tensor->FinishSum(*stream, pending);
  }
  // This rank's rows [R, h] of `whole` [T, h].
  kernels::Tensor OwnRows(const kernels::Tensor& whole) const {
    if (tensor == nullptr || !tensor->sequence_parallel()) return whole;
    const int64_t rows = whole.shape[0] / tensor->size();
    return whole.Rows(tensor->rank() * rows, rows);
  }
};

// Context of planning scratch and workspace. Scratch is taken from `arena` once when the model is
// planned (measuring) and once when it is bound, by the same calls; blocks that never live at the
// same time take the same bytes. All ops share one workspace, as large as the largest. Backends
// choose algorithms when they are asked for workspace sizes, so every product and attention op of
// steps and evaluations must be asked for, in each of its forms.
struct ScratchPlan {
  memory::StackArena* arena = nullptr;
  const Pass* pass = nullptr;  // for shapes and the backend
  bool accumulates = true;     // matrix gradients are accumulated, not only overwritten
  int64_t workspace_bytes = 0;

  void NeedWorkspace(int64_t bytes) { workspace_bytes = std::max(workspace_bytes, bytes); }
};

// A non-empty tensor of this shape that must not be read or written: an operand for planning.
inline kernels::Tensor Placeholder(kernels::DType dtype, const kernels::Shape& shape) {
  alignas(memory::kAlignBytes) static char byte;
  return {&byte, dtype, shape};
}

}  // namespace mt::model
