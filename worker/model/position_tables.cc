// Tables are computed on the host in fp64, rounded once, and copied to the device.
#include "worker/model/position_tables.h"

#include "kernels/ops/attention.h"
#include "kernels/ops/rope.h"

namespace mt::model {

using kernels::Tensor;

namespace {

// Fills a pinned host tensor of the same shape with `fill` and copies it to the device; blocks.
template <class Fill>
void FillOnHost(const Tensor& to, kernels::Device& device, kernels::Stream& stream,
                const Fill& fill) {
  const auto host = device.Allocate(to.Bytes(), kernels::MemoryKind::kPinnedHost);
  fill(Tensor{host->data(), to.dtype, to.shape});
  device.Copy(stream, to.data, host->data(), to.Bytes());
  stream.Synchronize();
}

}  // namespace

void PositionTables::Take(memory::StackArena* arena) {
  const kernels::DType accumulator = kernels::AccumulatorOf(config_.dtype);
  if (config_.position == PositionKind::kRope) {
    rope_ = arena->Take(accumulator, {config_.seq, kernels::RotatedChannels(config_.rope)});
  }
  if (config_.position == PositionKind::kAlibi) {
    slopes_ = arena->Take(accumulator, {config_.local_heads()});
  }
}

void PositionTables::Plan(memory::MemoryPlan* plan) {
  auto arena = memory::StackArena::Measuring();
  Take(&arena);
  block_ = plan->Reserve(memory::Kind::kWorkspace, arena.peak_bytes());
}

void PositionTables::Bind(const memory::Memory& memory, kernels::Device& device,
                          kernels::Stream& stream) {
  memory::StackArena arena(memory.Data(block_), block_.bytes);
  Take(&arena);
  if (rope_) {
    FillOnHost(rope_, device, stream,
               [this](const Tensor& host) { kernels::FillRopeTable(config_.rope, host); });
  }
  if (slopes_) {
    FillOnHost(slopes_, device, stream, [this](const Tensor& host) {
      kernels::FillAlibiSlopes(config_.heads, config_.shard.rank * config_.local_heads(), host);
    });
  }
}

}  // namespace mt::model
