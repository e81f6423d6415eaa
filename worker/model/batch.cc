// Everything that changes between microbatches is packed into one range of bytes, laid out alike in
// pinned and in device memory, so that a microbatch is one copy.
#include "worker/model/batch.h"

#include <cstring>
#include <numeric>

#include "common/base/check.h"
#include "common/base/math.h"

namespace mt::model {

using kernels::DType;
using kernels::Tensor;

namespace {

// Takes the packed tensors of a microbatch from `arena`.
void TakePacked(const BatchShape& shape, memory::StackArena* arena, BatchView* view) {
  const int64_t tokens = shape.tokens();
  view->s = shape.s;
  view->b = shape.b;
  view->tokens = arena->Take(DType::kI32, {tokens});
  view->labels = arena->Take(DType::kI32, {tokens});
  view->weights = arena->Take(DType::kF32, {tokens});
  view->samples = arena->Take(DType::kI64, {shape.b});
  view->order = arena->Take(DType::kI32, {tokens});
  view->segment_token = arena->Take(DType::kI32, {tokens});
  view->segment_start = arena->Take(DType::kI32, {tokens + 1});
  view->segment_count = arena->Take(DType::kI32, {1});
  if (shape.positions) view->table_positions = arena->Take(DType::kI32, {tokens});
  if (!shape.position_order) return;
  view->position_order = arena->Take(DType::kI32, {tokens});
  view->position_value = arena->Take(DType::kI32, {shape.s});
  view->position_start = arena->Take(DType::kI32, {shape.s + 1});
  view->position_count = arena->Take(DType::kI32, {1});
}

int64_t PackedBytes(const BatchShape& shape) {
  auto arena = memory::StackArena::Measuring();
  BatchView view;
  TakePacked(shape, &arena, &view);
  return arena.peak_bytes();
}

template <class T>
void PackInto(const Tensor& to, const std::vector<T>& from) {
  CHECK_LE(static_cast<int64_t>(from.size()), to.NumElements());
  std::memcpy(to.Data<T>(), from.data(), from.size() * sizeof(T));
}

void CheckFits(const data::Microbatch& batch, const BatchShape& shape) {
  CHECK_EQ(batch.s, shape.s);
  CHECK_EQ(batch.b, shape.b);
  const auto tokens = static_cast<size_t>(shape.tokens());
  CHECK(batch.tokens.size() == tokens && batch.labels.size() == tokens &&
        batch.weights.size() == tokens && batch.order.size() == tokens)
      << "microbatch of " << batch.tokens.size() << " tokens, planned " << tokens;
  CHECK_EQ(batch.samples.size(), static_cast<size_t>(shape.b));
  CHECK_EQ(batch.segment_start.size(), batch.segment_token.size() + 1);
  CHECK_EQ(batch.segment_count.size(), size_t{1});
  if (shape.positions) CHECK_EQ(batch.positions.size(), tokens) << "positions that restart";
  if (!shape.position_order) return;
  CHECK_EQ(batch.position_order.size(), tokens);
  CHECK_EQ(batch.position_start.size(), batch.position_value.size() + 1);
  CHECK_EQ(batch.position_count.size(), size_t{1});
}

void PackPositions(const data::Microbatch& batch, const BatchShape& shape, const BatchView& to) {
  if (shape.positions) PackInto(to.table_positions, batch.positions);
  if (!shape.position_order) return;
  PackInto(to.position_order, batch.position_order);
  PackInto(to.position_value, batch.position_value);
  PackInto(to.position_start, batch.position_start);
  PackInto(to.position_count, batch.position_count);
}

}  // namespace

BatchStaging::BatchStaging(const GptConfig& config, int places)
    : shape_(config), packed_bytes_(PackedBytes(shape_)), places_(static_cast<size_t>(places)) {
  CHECK_GT(places, 0);
}

void BatchStaging::Plan(memory::MemoryPlan* plan) {
  block_ =
      plan->Reserve(memory::Kind::kPinned, packed_bytes_ * static_cast<int64_t>(places_.size()));
}

void BatchStaging::Bind(const memory::Memory& memory, kernels::Device& device) {
  memory::StackArena arena(memory.Data(block_), block_.bytes);
  for (Place& place : places_) {
    TakePacked(shape_, &arena, &place.view);
    place.read = device.CreateEvent();
  }
}

void BatchStaging::Send(const data::Microbatch& batch, void* to, kernels::Device& device,
                        kernels::Stream& stream) {
  CheckFits(batch, shape_);
  Place& place = places_[next_];
  next_ = (next_ + 1) % places_.size();
  place.read->Synchronize();
  PackInto(place.view.tokens, batch.tokens);
  PackInto(place.view.labels, batch.labels);
  PackInto(place.view.weights, batch.weights);
  PackInto(place.view.samples, batch.samples);
  PackInto(place.view.order, batch.order);
  PackInto(place.view.segment_token, batch.segment_token);
  PackInto(place.view.segment_start, batch.segment_start);
  PackInto(place.view.segment_count, batch.segment_count);
  PackPositions(batch, shape_, place.view);
  device.Copy(stream, to, place.view.tokens.data, packed_bytes_);
  place.read->Record(stream);
}

void BatchBuffer::Take(memory::StackArena* arena) {
  view_.positions = arena->Take(DType::kI32, {shape_.s});
  TakePacked(shape_, arena, &view_);
  if (!shape_.positions) view_.table_positions = view_.positions;
  view_.row_positions = RowsOf(view_.positions);
  view_.row_table_positions = RowsOf(view_.table_positions);
}

Tensor BatchBuffer::RowsOf(const Tensor& positions) const {
  if (!shard_.cuts_rows()) return positions;
  const int64_t rows = base::DivExact(positions.NumElements(), shard_.size);
  return {positions.Data<int32_t>() + shard_.rank * rows, DType::kI32, {rows}};
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
  const Tensor& to = view_.positions;
  const auto host = device.Allocate(to.Bytes(), kernels::MemoryKind::kPinnedHost);
  auto* const positions = static_cast<int32_t*>(host->data());
  std::iota(positions, positions + shape_.s, 0);
  device.Copy(stream, to.data, positions, to.Bytes());
  stream.Synchronize();
}

const BatchView& BatchBuffer::Load(const data::Microbatch& batch, BatchStaging* staging,
                                   kernels::Device& device, kernels::Stream& stream) {
  staging->Send(batch, view_.tokens.data, device, stream);
  return view_;
}

}  // namespace mt::model
