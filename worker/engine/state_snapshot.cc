// One region per bucket and kind of state; what belongs to a rank is contiguous in each of them.
//
// Under ZeRO-1 without a model copy (fp32, fp64) the masters are the weights, which the step that
// ended may still be gathering on another lane. The copy needs no wait for that: the gather is in
// place (GradientSync::Gather), and there a group writes the other ranks' places alone. Gloo,
// shared memory and threads pass over the own place (their CopyBytes and CopyPart); NCCL sends from
// it, and whatever an algorithm of it might store there would be the same bytes.
#include "worker/engine/state_snapshot.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>

#include "common/base/check.h"
#include "common/base/math.h"
#include "worker/memory/memory.h"

namespace mt::engine {
namespace {

int64_t Aligned(int64_t bytes) { return base::RoundUp(bytes, memory::kAlignBytes); }

}  // namespace

int64_t StateSnapshot::BytesOf(const params::ParamStore& store) {
  const auto element = static_cast<int64_t>(kernels::SizeOf(store.accumulator_dtype()));
  int64_t bytes = 0;
  for (int bucket = 0; bucket < store.layout().num_buckets(); ++bucket)
    bytes += Aligned(store.OwnSlice(bucket).count * element);
  return bytes * (1 + store.share().moments);
}

StateSnapshot::StateSnapshot(kernels::Device* device, const params::ParamStore* store, void* memory)
    : device_(device),
      stream_(device->CreateStream(kernels::StreamPriority::kLow)),
      state_(device->CreateEvent()),
      copied_(device->CreateEvent()) {
  auto* to = static_cast<std::byte*>(memory);
  for (int bucket = 0; bucket < store->layout().num_buckets(); ++bucket) {
    const params::ParamStore::State state = store->StateOf(bucket, store->OwnSlice(bucket));
    for (const kernels::Tensor& part : {state.master, state.m, state.v}) {
      if (!part || part.Bytes() == 0) continue;
      regions_.push_back(
          {.from = static_cast<const std::byte*>(part.data), .to = to, .bytes = part.Bytes()});
      to += Aligned(part.Bytes());
    }
  }
  CHECK_LE(to - static_cast<std::byte*>(memory), BytesOf(*store));
  std::ranges::sort(regions_, {}, &Region::from);
}

void StateSnapshot::Begin(kernels::Stream& stream) {
  state_->Record(stream);
  pending_ = true;
  base::MutexLock lock(&mu_);
  CHECK(enqueued_) << "the copy before is not made yet";
  enqueued_ = false;
}

void StateSnapshot::Enqueued() {
  base::MutexLock lock(&mu_);
  enqueued_ = true;
  changed_.NotifyAll();
}

void StateSnapshot::Copy() {
  try {
    stream_->Wait(*state_);
    for (const Region& region : regions_)
      device_->Copy(*stream_, region.to, region.from, region.bytes);
    copied_->Record(*stream_);
  } catch (...) {
    Enqueued();
    throw;
  }
  Enqueued();
  copied_->Synchronize();
}

void StateSnapshot::AwaitCopied(kernels::Stream& stream) {
  if (!pending_) return;
  {
    base::MutexLock lock(&mu_);
    while (!enqueued_) changed_.Wait(&mu_);
  }
  stream.Wait(*copied_);
  pending_ = false;
}

const void* StateSnapshot::At(const void* state) const {
  const auto* byte = static_cast<const std::byte*>(state);
  auto behind = std::ranges::upper_bound(regions_, byte, {}, &Region::from);
  CHECK(behind != regions_.begin()) << "an address below the state";
  const Region& region = *--behind;
  CHECK_LT(byte - region.from, region.bytes);
  return region.to + (byte - region.from);
}

}  // namespace mt::engine
