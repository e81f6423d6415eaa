// A slot is free once it was released: whoever used it was enqueued before, on the compute stream
// behind which a receive begins.
#include "worker/parallel/pipeline/stream_link.h"

#include <utility>

#include "common/base/check.h"

namespace mt::parallel {

using kernels::DType;
using kernels::Stream;

namespace {

// One message of these bytes, sent or received by `call`, and the wait for it.
template <class Call>
Status Meet(kernels::Device* device, Stream& stream, const comm::ProcessGroup& group,
            const Call& call) {
  constexpr int64_t kBytes = 256;
  const auto message = device->Allocate(kBytes, kernels::MemoryKind::kDevice);
  device->Zero(stream, message->data(), kBytes);
  const Status met = call(message->data(), kBytes);
  stream.Synchronize();  // also where it failed: the memory is freed
  return met.ok() ? group.status() : met;
}

}  // namespace

StreamSender::StreamSender(std::unique_ptr<comm::ProcessGroup> group, kernels::Device* device)
    : group_(std::move(group)),
      device_(device),
      stream_(device->CreateStream(kernels::StreamPriority::kHigh)),
      ready_(device->CreateEvent()) {
  CheckLinkMembers(*group_, kSenderIndex);
}

Status StreamSender::WarmUp() {
  return Meet(device_, *stream_, *group_, [this](const void* data, int64_t bytes) {
    return group_->Send(*stream_, data, bytes, DType::kU8, kReceiverIndex, /*edge=*/0);
  });
}

Status StreamSender::Begin(Stream& /*stream*/, const Pass& /*pass*/) { return status(); }

Status StreamSender::Send(Stream& stream, const Parcel& parcel) {
  ready_->Record(stream);
  stream_->Wait(*ready_);
  RETURN_IF_ERROR(TimeParcel(*stream_, [&] {
    return group_->Send(*stream_, parcel.tensor.data, parcel.tensor.NumElements(),
                        parcel.tensor.dtype, kReceiverIndex, /*edge=*/0);
  }));
  std::unique_ptr<kernels::Event>& sent = sent_[{parcel.chunk, parcel.slot}];
  if (sent == nullptr) sent = device_->CreateEvent();
  sent->Record(*stream_);
  return OkStatus();
}

Status StreamSender::WaitSent(Stream& stream, int chunk, int slot) {
  const auto sent = sent_.find({chunk, slot});
  if (sent != sent_.end()) stream.Wait(*sent->second);
  return status();
}

// Buffers are waited for one by one, by whoever writes them next.
Status StreamSender::WaitAllSent(Stream& /*stream*/) { return status(); }

void StreamSender::Detach() {
  if (status().ok()) stream_->Synchronize();
}

StreamReceiver::StreamReceiver(std::unique_ptr<comm::ProcessGroup> group, kernels::Device* device)
    : group_(std::move(group)),
      device_(device),
      stream_(device->CreateStream(kernels::StreamPriority::kHigh)),
      begin_(device->CreateEvent()) {
  CheckLinkMembers(*group_, kReceiverIndex);
}

Status StreamReceiver::WarmUp() {
  return Meet(device_, *stream_, *group_, [this](void* data, int64_t bytes) {
    return group_->Recv(*stream_, data, bytes, DType::kU8, kSenderIndex, /*edge=*/0);
  });
}

Status StreamReceiver::Begin(Stream& /*stream*/, std::vector<Parcel> parcels,
                             const Pass& /*pass*/) {
  RETURN_IF_ERROR(status());
  CHECK_EQ(num_taken_, parcels_.size()) << group_->name();
  for (const auto& [slot, held] : held_) {
    CHECK(!held) << group_->name() << ": chunk " << slot.first << ", slot " << slot.second;
  }
  parcels_ = std::move(parcels);
  num_begun_ = num_taken_ = 0;
  return OkStatus();
}

Status StreamReceiver::Receive(Stream& stream) {
  const Parcel& parcel = parcels_[num_begun_++];
  held_[{parcel.chunk, parcel.slot}] = true;
  begin_->Record(stream);
  stream_->Wait(*begin_);
  RETURN_IF_ERROR(group_->Recv(*stream_, parcel.tensor.data, parcel.tensor.NumElements(),
                               parcel.tensor.dtype, kSenderIndex, /*edge=*/0));
  std::unique_ptr<kernels::Event>& received = received_[{parcel.chunk, parcel.slot}];
  if (received == nullptr) received = device_->CreateEvent();
  received->Record(*stream_);
  return OkStatus();
}

Status StreamReceiver::Expect(Stream& stream, int count) {
  RETURN_IF_ERROR(status());
  const size_t end = num_taken_ + static_cast<size_t>(count);
  CHECK_LE(end, parcels_.size()) << group_->name();
  while (num_begun_ < end) {
    const Parcel& next = parcels_[num_begun_];
    // An action before uses the slot: the receive is begun behind that.
    if (held_[{next.chunk, next.slot}]) return OkStatus();
    RETURN_IF_ERROR(Receive(stream));
  }
  return OkStatus();
}

Status StreamReceiver::WaitReady(Stream& stream, int chunk, int slot) {
  CHECK_LT(num_taken_, parcels_.size()) << group_->name();
  const Parcel& parcel = parcels_[num_taken_];
  CHECK(parcel.chunk == chunk && parcel.slot == slot) << group_->name();
  if (num_begun_ == num_taken_) {
    const bool held = held_[{chunk, slot}];
    CHECK(!held) << group_->name() << ": chunk " << chunk << ", slot " << slot << " is in use";
    RETURN_IF_ERROR(Receive(stream));
  }
  ++num_taken_;
  stream.Wait(*received_[{chunk, slot}]);
  return status();
}

void StreamReceiver::Detach() {
  if (status().ok()) stream_->Synchronize();
}

void StreamReceiver::Release(Stream& /*stream*/, int chunk, int slot) {
  if (!status().ok()) return;
  bool& held = held_[{chunk, slot}];
  CHECK(held) << group_->name() << ": chunk " << chunk << ", slot " << slot;
  held = false;
}

}  // namespace mt::parallel
