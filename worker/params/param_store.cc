// All views come down to offset arithmetic on five flat buffers. State buffers are compact: since
// every bucket is divided by the same dp_size, a slice begins at a dp_size-th of its bucket's
// offset.
#include "worker/params/param_store.h"

#include "common/base/math.h"

namespace mt::params {

using kernels::SizeOf;
using kernels::Tensor;

ParamStore::ParamStore(const Registry* registry, const FlatLayout* layout, kernels::DType dtype,
                       const StateShare& share)
    : registry_(registry), layout_(layout), dtype_(dtype), share_(share) {
  CHECK(share.zero_stage >= 0 && share.zero_stage <= 1) << share.zero_stage;
  CHECK(share.dp_rank >= 0 && share.dp_rank < layout->dp_size()) << share.dp_rank;
  CHECK(share.moments >= 0 && share.moments <= 2) << share.moments;
}

int64_t ParamStore::StateElements() const {
  const int64_t n = layout_->num_elements();
  return state_is_cut() ? base::DivExact(n, layout_->dp_size()) : n;
}

void ParamStore::Plan(memory::MemoryPlan* plan) {
  const int64_t n = layout_->num_elements();
  weights_block_ = plan->Reserve(memory::Kind::kWeights, n * SizeOf(dtype_));
  grads_block_ = plan->Reserve(memory::Kind::kGradients, n * SizeOf(accumulator_dtype()));
  const int64_t state_bytes = StateElements() * SizeOf(accumulator_dtype());
  if (has_model_copy()) master_block_ = plan->Reserve(memory::Kind::kOptimizer, state_bytes);
  if (share_.moments > 0) first_block_ = plan->Reserve(memory::Kind::kOptimizer, state_bytes);
  if (share_.moments > 1) second_block_ = plan->Reserve(memory::Kind::kOptimizer, state_bytes);
}

void ParamStore::Bind(const memory::Memory& memory) {
  const auto flat = [&](const memory::Block& block, kernels::DType dtype, int64_t count) {
    return Tensor{memory.Data(block), dtype, {count}};
  };
  const auto state = [&](const memory::Block& block) {
    return flat(block, accumulator_dtype(), StateElements());
  };
  weights_ = flat(weights_block_, dtype_, layout_->num_elements());
  grads_ = flat(grads_block_, accumulator_dtype(), layout_->num_elements());
  if (has_model_copy()) master_ = state(master_block_);
  if (share_.moments > 0) first_moment_ = state(first_block_);
  if (share_.moments > 1) second_moment_ = state(second_block_);
}

Tensor ParamStore::BucketGrads(int bucket) const {
  const Bucket& b = layout_->bucket(bucket);
  return Cut(grads_, {.begin = b.begin, .count = b.count});
}

Tensor ParamStore::BucketWeights(int bucket) const {
  const Bucket& b = layout_->bucket(bucket);
  return Cut(weights_, {.begin = b.begin, .count = b.count});
}

Slice ParamStore::UpdatedSlice(int bucket) const {
  if (state_is_cut()) return OwnSlice(bucket);
  const Bucket& b = layout_->bucket(bucket);
  return {.begin = b.begin, .count = b.count};
}

Slice ParamStore::InState(int bucket, Slice elements) const {
  const Slice updated = UpdatedSlice(bucket);
  const int64_t within = elements.begin - updated.begin;
  CHECK(within >= 0 && within + elements.count <= updated.count) << "not this replica's state";
  // Every bucket is divided by dp_size, so the slices in front of this one hold a dp_size-th of the
  // elements in front of its bucket.
  const int64_t bucket_begin = layout_->bucket(bucket).begin;
  const int64_t first =
      state_is_cut() ? base::DivExact(bucket_begin, layout_->dp_size()) : bucket_begin;
  return {.begin = first + within, .count = elements.count};
}

ParamStore::State ParamStore::StateOf(int bucket) const {
  return StateOf(bucket, UpdatedSlice(bucket));
}

ParamStore::State ParamStore::StateOf(int bucket, Slice elements) const {
  const Slice in_state = InState(bucket, elements);
  State state;
  state.gradient = Cut(grads_, elements);
  state.master = has_model_copy() ? Cut(master_, in_state) : Cut(weights_, elements);
  if (first_moment_) state.m = Cut(first_moment_, in_state);
  if (second_moment_) state.v = Cut(second_moment_, in_state);
  if (has_model_copy()) state.model_copy = Cut(weights_, elements);
  return state;
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
Tensor ParamStore::WeightSpan(ParamId first, ParamId last) const {
  return Span(weights_, first, last);
}
Tensor ParamStore::GradSpan(ParamId first, ParamId last) const { return Span(grads_, first, last); }

}  // namespace mt::params
