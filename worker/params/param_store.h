// The buffers behind a FlatLayout: weights in the training precision, gradients in its accumulator
// type, and the optimizer's master copy and moments, replicated or sharded over the data parallel
// ranks (ZeRO-1). Hands out views; the memory is owned by worker/memory.
#pragma once

#include <cstdint>

#include "kernels/core/tensor.h"
#include "worker/memory/memory.h"
#include "worker/params/flat_layout.h"
#include "worker/params/registry.h"

namespace mt::params {

// The part of the optimizer's state that a replica keeps.
struct StateShare {
  int zero_stage = 0;   // 0: all; 1: its slice of each bucket (P_os, Rajbhandari et al. 2020, 5.1)
  int64_t dp_rank = 0;  // of this replica
  int moments = 2;      // state tensors beside the master: AdamW 2, SGD 1, SGD without momentum 0
};

// Used by one thread at a time. Views are plain pointers into the bound memory and stay valid as
// long as it does.
class ParamStore {
 public:
  // Registry and layout must outlive the store. `dtype` is the type of weights and activations.
  // CHECKs that the share names stage 0 or 1, a rank of the layout and at most two moments.
  ParamStore(const Registry* registry, const FlatLayout* layout, kernels::DType dtype,
             const StateShare& share = {});

  // Reserves every buffer; call once, before plan is allocated.
  void Plan(memory::MemoryPlan* plan);
  // Binds the buffers to allocated memory, in which all elements are zero. Call once, after Plan.
  void Bind(const memory::Memory& memory);

  const Registry& registry() const { return *registry_; }
  const FlatLayout& layout() const { return *layout_; }
  kernels::DType weight_dtype() const { return dtype_; }
  kernels::DType accumulator_dtype() const { return kernels::AccumulatorOf(dtype_); }
  const StateShare& share() const { return share_; }
  // True if replicas hold different slices of the optimizer's state (ZeRO-1 with dp > 1). The
  // weights are then all-gathered after each update.
  bool state_is_cut() const { return share_.zero_stage >= 1 && layout_->dp_size() > 1; }
  // True if the weights are a rounded copy of the master (16-bit precisions).
  bool has_model_copy() const { return dtype_ != accumulator_dtype(); }

  // Views of one parameter with its stored shape.
  kernels::Tensor Weight(ParamId id) const;
  kernels::Tensor Grad(ParamId id) const;
  // Consecutive joined parameters as one tensor, their rows concatenated ([3h, h] for q, k, v; [3h]
  // for their biases). CHECKs that they are joined.
  kernels::Tensor WeightSpan(ParamId first, ParamId last) const;
  kernels::Tensor GradSpan(ParamId first, ParamId last) const;

  // The whole flat buffers, [num_elements].
  kernels::Tensor weights() const { return weights_; }
  kernels::Tensor grads() const { return grads_; }
  // Gradients and weights of a bucket, [count].
  kernels::Tensor BucketGrads(int bucket) const;
  kernels::Tensor BucketWeights(int bucket) const;

  // The slice of a bucket whose reduced gradients and saved state this replica is responsible for,
  // at any ZeRO stage. In elements of the flat buffers.
  Slice OwnSlice(int bucket) const { return layout_->OwnSlice(bucket, share_.dp_rank); }
  // The elements of a bucket that this replica updates: its own slice where the state is sharded,
  // else the whole bucket.
  Slice UpdatedSlice(int bucket) const;
  // The optimizer's operands over a range of elements, each [count].
  struct State {
    kernels::Tensor gradient;
    kernels::Tensor master;      // fp32, fp64: the weights themselves
    kernels::Tensor m, v;        // absent beyond share().moments
    kernels::Tensor model_copy;  // 16-bit weights; absent without a model copy
  };
  // The operands of UpdatedSlice(bucket).
  State StateOf(int bucket) const;
  // The operands of a range of the flat buffers, which must lie within UpdatedSlice(bucket)
  // (CHECK).
  State StateOf(int bucket, Slice elements) const;

  // The view of the elements `slice` of a flat buffer; the range is CHECKed.
  static kernels::Tensor Cut(const kernels::Tensor& flat, Slice slice);

 private:
  kernels::Tensor View(const kernels::Tensor& flat, ParamId id) const;
  kernels::Tensor Span(const kernels::Tensor& flat, ParamId first, ParamId last) const;
  // Translates a range of the flat buffers to the same elements in the state buffers.
  Slice InState(int bucket, Slice elements) const;
  // Length of each state buffer.
  int64_t StateElements() const;

  const Registry* registry_;
  const FlatLayout* layout_;
  kernels::DType dtype_;
  StateShare share_;
  memory::Block weights_block_, grads_block_, master_block_, first_block_, second_block_;
  kernels::Tensor weights_, grads_;
  // [StateElements]: this replica's slices one after the other, in bucket order. Empty tensors
  // where the state does not exist.
  kernels::Tensor master_, first_moment_, second_moment_;
};

}  // namespace mt::params
