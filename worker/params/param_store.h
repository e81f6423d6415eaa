// The buffers behind a layout: weights in the precision's type, gradients in its accumulator type,
// and the optimizer's master copy and moments, whole or cut over the replicas. Hands out views;
// owns no memory (worker/memory does).
#pragma once

#include <cstdint>

#include "kernels/core/tensor.h"
#include "worker/memory/memory.h"
#include "worker/params/flat_layout.h"
#include "worker/params/registry.h"

namespace mt::params {

// How much of the optimizer's state a replica keeps.
struct StateShare {
  int zero_stage = 0;  // 0: all; 1: its slice of every bucket (Rajbhandari et al. 2020 §5.1, P_os)
  int64_t dp_rank = 0;  // this replica
  int moments = 2;      // state tensors beside the master: AdamW 2, SGD 1, without momentum 0
};

// Used by one thread at a time; the views it gives out are plain pointers.
class ParamStore {
 public:
  // Registry and layout must outlive the store. `dtype` is the precision of weights and
  // activations.
  ParamStore(const Registry* registry, const FlatLayout* layout, kernels::DType dtype,
             const StateShare& share = {});

  // Reserves every buffer; call once, before plan is allocated.
  void Plan(memory::MemoryPlan* plan);
  // Takes the buffers; all elements are zero.
  void Bind(const memory::Memory& memory);

  const Registry& registry() const { return *registry_; }
  const FlatLayout& layout() const { return *layout_; }
  kernels::DType weight_dtype() const { return dtype_; }
  kernels::DType accumulator_dtype() const { return kernels::AccumulatorOf(dtype_); }
  const StateShare& share() const { return share_; }
  // Whether replicas hold different parts of the optimizer's state: weights are then gathered after
  // each update.
  bool state_is_cut() const { return share_.zero_stage >= 1 && layout_->dp_size() > 1; }
  // Whether the weights are a rounded copy of the master (16-bit precision).
  bool has_model_copy() const { return dtype_ != accumulator_dtype(); }

  // Views of one parameter, of its stored shape.
  kernels::Tensor Weight(ParamId id) const;
  kernels::Tensor Grad(ParamId id) const;
  // A run of joined parameters as one tensor: rows added up ([3h, h] of q, k, v; [3h] of biases).
  kernels::Tensor WeightSpan(ParamId first, ParamId last) const;
  kernels::Tensor GradSpan(ParamId first, ParamId last) const;

  // The whole flat buffers, [num_elements].
  kernels::Tensor weights() const { return weights_; }
  kernels::Tensor grads() const { return grads_; }
  // Gradients and weights of a bucket, [count].
  kernels::Tensor BucketGrads(int bucket) const;
  kernels::Tensor BucketWeights(int bucket) const;

  // The elements of a bucket whose sums this replica answers for, whatever the stage: its slice. In
  // elements of the flat buffers.
  Slice OwnSlice(int bucket) const { return layout_->OwnSlice(bucket, share_.dp_rank); }
  // The elements of a bucket that this replica updates: its slice where the state is cut, else all.
  Slice UpdatedSlice(int bucket) const;
  // The optimizer's operands over a run of elements, all [count].
  struct State {
    kernels::Tensor gradient;
    kernels::Tensor master;      // under fp32 and fp64 the weights themselves
    kernels::Tensor m, v;        // absent beyond share().moments
    kernels::Tensor model_copy;  // 16-bit weights; absent without a model copy
  };
  // Of UpdatedSlice(bucket).
  State StateOf(int bucket) const;
  // Of elements of the flat buffers within one bucket's UpdatedSlice.
  State StateOf(int bucket, Slice elements) const;

  // Elements [slice) of a flat buffer.
  static kernels::Tensor Cut(const kernels::Tensor& flat, Slice slice);

 private:
  kernels::Tensor View(const kernels::Tensor& flat, ParamId id) const;
  kernels::Tensor Span(const kernels::Tensor& flat, ParamId first, ParamId last) const;
  // Where these elements lie in the state buffers.
  Slice InState(int bucket, Slice elements) const;
  // Elements of each state buffer.
  int64_t StateElements() const;

  const Registry* registry_;
  const FlatLayout* layout_;
  kernels::DType dtype_;
  StateShare share_;
  memory::Block weights_block_, grads_block_, master_block_, first_block_, second_block_;
  kernels::Tensor weights_, grads_;
  // [StateElements], compact, in bucket order; absent where there is none.
  kernels::Tensor master_, first_moment_, second_moment_;
};

}  // namespace mt::params
