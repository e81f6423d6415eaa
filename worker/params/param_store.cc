#include "worker/params/param_store.h"

namespace mt::params {

using kernels::SizeOf;
using kernels::Tensor;

ParamStore::ParamStore(const Registry* registry, const FlatLayout* layout, kernels::DType dtype)
    : registry_(registry), layout_(layout), dtype_(dtype) {}

void ParamStore::Plan(memory::MemoryPlan* plan) {
  const int64_t n = layout_->num_elements();
  const int64_t accumulator_bytes = n * SizeOf(accumulator_dtype());
  weights_block_ = plan->Reserve(memory::Kind::kWeights, n * SizeOf(dtype_));
  grads_block_ = plan->Reserve(memory::Kind::kGradients, accumulator_bytes);
  if (has_model_copy()) {
    master_block_ = plan->Reserve(memory::Kind::kOptimizer, accumulator_bytes);
  }
  first_block_ = plan->Reserve(memory::Kind::kOptimizer, accumulator_bytes);
  second_block_ = plan->Reserve(memory::Kind::kOptimizer, accumulator_bytes);
}

void ParamStore::Bind(const memory::Memory& memory) {
  const auto flat = [&](const memory::Block& block, kernels::DType dtype) {
    return Tensor{memory.Data(block), dtype, {layout_->num_elements()}};
  };
  weights_ = flat(weights_block_, dtype_);
  grads_ = flat(grads_block_, accumulator_dtype());
  master_ = has_model_copy() ? flat(master_block_, accumulator_dtype()) : weights_;
  first_moment_ = flat(first_block_, accumulator_dtype());
  second_moment_ = flat(second_block_, accumulator_dtype());
}

Tensor ParamStore::Cut(const Tensor& flat, Slice slice) {
  CHECK_EQ(flat.shape.rank(), 1);
  CHECK(slice.begin >= 0 && slice.count >= 0 && slice.begin + slice.count <= flat.shape[0])
      << slice.begin << "+" << slice.count << " of " << flat.shape[0];
  return {
      static_cast<char*>(flat.data) + slice.begin * SizeOf(flat.dtype), flat.dtype, {slice.count}};
}

Tensor ParamStore::View(const Tensor& flat, ParamId id) const {
  const kernels::Shape& stored = (*registry_)[id].stored;
  return Cut(flat, {.begin = layout_->OffsetOf(id), .count = stored.NumElements()})
      .Reshaped(stored);
}

Tensor ParamStore::Span(const Tensor& flat, ParamId first, ParamId last) const {
  const auto begin = static_cast<int32_t>(first);
  const auto end = static_cast<int32_t>(last);
  CHECK_LE(begin, end);
  const kernels::Shape& shape = (*registry_)[first].stored;
  int64_t rows = shape[0];
  for (int32_t i = begin + 1; i <= end; ++i) {
    const ParamSpec& spec = (*registry_)[ParamId{i}];
    CHECK(spec.joined) << spec.name << " is not joined to the parameter before it";
    rows += spec.stored[0];
  }
  const int64_t columns = shape.rank() == 2 ? shape[1] : 1;
  const Tensor run = Cut(flat, {.begin = layout_->OffsetOf(first), .count = rows * columns});
  return shape.rank() == 2 ? run.Reshaped({rows, columns}) : run;
}

Tensor ParamStore::Weight(ParamId id) const { return View(weights_, id); }
Tensor ParamStore::Grad(ParamId id) const { return View(grads_, id); }
Tensor ParamStore::Master(ParamId id) const { return View(master_, id); }
Tensor ParamStore::FirstMoment(ParamId id) const { return View(first_moment_, id); }
Tensor ParamStore::SecondMoment(ParamId id) const { return View(second_moment_, id); }

Tensor ParamStore::WeightSpan(ParamId first, ParamId last) const {
  return Span(weights_, first, last);
}
Tensor ParamStore::GradSpan(ParamId first, ParamId last) const { return Span(grads_, first, last); }

}  // namespace mt::params
