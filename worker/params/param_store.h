// The buffers behind a layout: weights in the precision's type, gradients in its accumulator type,
// and the optimizer's master copy and moments. Hands out views; owns no memory (worker/memory
// does).
#pragma once

#include <cstdint>

#include "kernels/core/tensor.h"
#include "worker/memory/memory.h"
#include "worker/params/flat_layout.h"
#include "worker/params/registry.h"

namespace mt::params {

// Used by one thread at a time; the views it gives out are plain pointers.
class ParamStore {
 public:
  // Registry and layout must outlive the store. `dtype` is the precision of weights and
  // activations.
  ParamStore(const Registry* registry, const FlatLayout* layout, kernels::DType dtype);

  // Reserves every buffer; call once, before plan is allocated.
  void Plan(memory::MemoryPlan* plan);
  // Takes the buffers; all elements are zero.
  void Bind(const memory::Memory& memory);

  const Registry& registry() const { return *registry_; }
  const FlatLayout& layout() const { return *layout_; }
  kernels::DType weight_dtype() const { return dtype_; }
  kernels::DType accumulator_dtype() const { return kernels::AccumulatorOf(dtype_); }

  // Views of one parameter, of its stored shape.
  kernels::Tensor Weight(ParamId id) const;
  kernels::Tensor Grad(ParamId id) const;
  kernels::Tensor Master(ParamId id) const;
  kernels::Tensor FirstMoment(ParamId id) const;
  kernels::Tensor SecondMoment(ParamId id) const;
  // A run of joined parameters as one tensor: rows added up ([3h, h] of q, k, v; [3h] of biases).
  kernels::Tensor WeightSpan(ParamId first, ParamId last) const;
  kernels::Tensor GradSpan(ParamId first, ParamId last) const;

  // The whole flat buffers, [num_elements].
  kernels::Tensor weights() const { return weights_; }
  kernels::Tensor grads() const { return grads_; }
  // Under fp32 and fp64 the weights themselves.
  kernels::Tensor master() const { return master_; }
  kernels::Tensor first_moment() const { return first_moment_; }
  kernels::Tensor second_moment() const { return second_moment_; }
  // Whether the weights are a rounded copy of the master (16-bit precision).
  bool has_model_copy() const { return dtype_ != accumulator_dtype(); }

  // Elements [slice) of a flat buffer.
  static kernels::Tensor Cut(const kernels::Tensor& flat, Slice slice);

 private:
  kernels::Tensor View(const kernels::Tensor& flat, ParamId id) const;
  kernels::Tensor Span(const kernels::Tensor& flat, ParamId first, ParamId last) const;

  const Registry* registry_;
  const FlatLayout* layout_;
  kernels::DType dtype_;
  memory::Block weights_block_, grads_block_, master_block_, first_block_, second_block_;
  kernels::Tensor weights_, grads_, master_, first_moment_, second_moment_;
};

}  // namespace mt::params
