// Placement and copies of a microbatch.
#include "worker/model/batch.h"

#include <numeric>
#include <vector>

#include "common/base/check.h"
#include "common/base/math.h"

namespace mt::model {

using kernels::DType;
using kernels::Tensor;

namespace {

template <class T>
void CopyTo(const Tensor& to, const std::vector<T>& from, kernels::Device& device,
            kernels::Stream& stream) {
  CHECK_LE(static_cast<int64_t>(from.size()), to.NumElements());
  device.Copy(stream, to.Data<T>(), from.data(), static_cast<int64_t>(from.size() * sizeof(T)));
}

}  // namespace

void BatchBuffer::Take(memory::StackArena* arena) {
  const int64_t tokens = s_ * b_;
  view_ = {.s = s_,
           .b = b_,
           .tokens = arena->Take(DType::kI32, {tokens}),
           .labels = arena->Take(DType::kI32, {tokens}),
           .weights = arena->Take(DType::kF32, {tokens}),
           .samples = arena->Take(DType::kI64, {b_}),
           .positions = arena->Take(DType::kI32, {s_}),
           .order = arena->Take(DType::kI32, {tokens}),
           .segment_token = arena->Take(DType::kI32, {tokens}),
           .segment_start = arena->Take(DType::kI32, {tokens + 1}),
           .segment_count = arena->Take(DType::kI32, {1})};
  view_.row_positions = view_.positions;
  if (!shard_.cuts_rows()) return;
  const int64_t rows = base::DivExact(s_, shard_.size);
  view_.row_positions = {view_.positions.Data<int32_t>() + shard_.rank * rows, DType::kI32, {rows}};
}

void BatchBuffer::Plan(memory::MemoryPlan* plan) {
  auto arena = memory::StackArena::Measuring();
  Take(&arena);
  block_ = plan->Reserve(memory::Kind::kWorkspace, arena.peak_bytes());
}

void BatchBuffer::Bind(const memory::Memory& memory, kernels::Device& device,
                       kernels::Stream& stream) {
  memory::StackArena arena(memory.Data(block_), block_.bytes);
  Take(&arena);
  std::vector<int32_t> positions(static_cast<size_t>(s_));
  std::iota(positions.begin(), positions.end(), 0);
  CopyTo(view_.positions, positions, device, stream);
  stream.Synchronize();
}

const BatchView& BatchBuffer::Load(const data::Microbatch& batch, kernels::Device& device,
                                   kernels::Stream& stream) {
  CHECK_EQ(batch.s, s_);
  CHECK_EQ(batch.b, b_);
  const auto tokens = static_cast<size_t>(s_ * b_);
  CHECK(batch.tokens.size() == tokens && batch.labels.size() == tokens &&
        batch.weights.size() == tokens && batch.order.size() == tokens)
      << "microbatch of " << batch.tokens.size() << " tokens, planned " << tokens;
  CHECK_EQ(batch.samples.size(), static_cast<size_t>(b_));
  CHECK_EQ(batch.segment_start.size(), batch.segment_token.size() + 1);
  CHECK_EQ(batch.segment_count.size(), size_t{1});
  CopyTo(view_.tokens, batch.tokens, device, stream);
  CopyTo(view_.labels, batch.labels, device, stream);
  CopyTo(view_.weights, batch.weights, device, stream);
  CopyTo(view_.samples, batch.samples, device, stream);
  CopyTo(view_.order, batch.order, device, stream);
  CopyTo(view_.segment_token, batch.segment_token, device, stream);
  CopyTo(view_.segment_start, batch.segment_start, device, stream);
  CopyTo(view_.segment_count, batch.segment_count, device, stream);
  return view_;
}

}  // namespace mt::model
