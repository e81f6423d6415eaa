// Slots are free when WaitReady asks for their next parcel, since the compute stream that it orders
// behind has released them.
#include "worker/parallel/pipeline/stream_link.h"

#include <utility>

#include "common/base/check.h"

namespace mt::parallel {

using kernels::Stream;

StreamSender::StreamSender(std::unique_ptr<comm::ProcessGroup> group, kernels::Device* device)
    : group_(std::move(group)),
      device_(device),
      stream_(device->CreateStream(kernels::StreamPriority::kHigh)),
      ready_(device->CreateEvent()) {
  CheckLinkMembers(*group_, kSenderIndex);
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
      stream_(device->CreateStream(kernels::StreamPriority::kHigh)),
      begin_(device->CreateEvent()),
      received_(device->CreateEvent()) {
  CheckLinkMembers(*group_, kReceiverIndex);
}

Status StreamReceiver::Begin(Stream& /*stream*/, std::vector<Parcel> parcels,
                             const Pass& /*pass*/) {
  RETURN_IF_ERROR(status());
  CHECK_EQ(num_taken_, parcels_.size()) << group_->name();
  parcels_ = std::move(parcels);
  num_taken_ = 0;
  return OkStatus();
}

Status StreamReceiver::WaitReady(Stream& stream, int chunk, int slot) {
  CHECK_LT(num_taken_, parcels_.size()) << group_->name();
  const Parcel& parcel = parcels_[num_taken_++];
  CHECK(parcel.chunk == chunk && parcel.slot == slot) << group_->name();
  begin_->Record(stream);
  stream_->Wait(*begin_);
  RETURN_IF_ERROR(group_->Recv(*stream_, parcel.tensor.data, parcel.tensor.NumElements(),
                               parcel.tensor.dtype, kSenderIndex, /*edge=*/0));
  received_->Record(*stream_);
  stream.Wait(*received_);
  return OkStatus();
}

void StreamReceiver::Detach() {
  if (status().ok()) stream_->Synchronize();
}

void StreamReceiver::Release(Stream& /*stream*/, int /*chunk*/, int /*slot*/) {}

}  // namespace mt::parallel
