// Counters of parcels under one mutex tell sender, receiver and their threads how far a pass is;
// the waits end when a counter reaches its parcel or the link fails.
#include "worker/parallel/pipeline/host_link.h"

#include <pthread.h>
#include <string>

namespace mt::parallel {
namespace {

int LaneOf(int64_t number, int lanes) { return static_cast<int>(number % lanes); }

void NameThread(std::thread& thread, const char* name) {
  ::pthread_setname_np(thread.native_handle(), name);
}

}  // namespace

HostEnd::HostEnd(std::unique_ptr<comm::ProcessGroup> group, kernels::Device* device)
    : group_(std::move(group)), stream_(device->CreateStream(kernels::StreamPriority::kHigh)) {}

void HostEnd::Break(std::string_view reason) {
  group_->Abort(reason);
  Fail(group_->status());
}

Status HostEnd::Kept() const {
  base::MutexLock lock(&mu_);
  return status_;
}

void HostEnd::Fail(const Status& why) {
  {
    base::MutexLock lock(&mu_);
    if (status_.ok()) status_ = why;
    changed_.NotifyAll();
  }
  group_->Abort(base::ToStd(why.message()));  // no effect if the group itself failed
}

HostSender::HostSender(std::unique_ptr<comm::ProcessGroup> group, kernels::Device* device,
                       bool overlap)
    : HostEnd(std::move(group), device) {
  CheckLinkMembers(*group_, kSenderIndex);
  if (!overlap) return;
  thread_ = std::thread([this] { SendQueued(); });
  NameThread(thread_, "mt-link-send");
}

HostSender::~HostSender() {
  if (!thread_.joinable()) return;
  bool busy = false;
  {
    base::MutexLock lock(&mu_);
    stop_ = true;
    busy = num_sent_ < static_cast<int64_t>(queue_.size());
    changed_.NotifyAll();
  }
  if (busy) group_->Abort("the sending stage has left");
  thread_.join();
}

Status HostSender::Begin(kernels::Stream& /*stream*/, const Pass& pass) {
  base::MutexLock lock(&mu_);
  if (!status_.ok()) return status_;
  CHECK_EQ(num_sent_, static_cast<int64_t>(queue_.size())) << group_->name();
  queue_.clear();
  num_sent_ = 0;
  lanes_ = pass.lanes;
  last_of_slot_.clear();
  return OkStatus();
}

Status HostSender::Send(kernels::Stream& /*stream*/, const Parcel& parcel) {
  int64_t number = 0;
  int lanes = 1;
  {
    base::MutexLock lock(&mu_);
    if (!status_.ok()) return status_;
    number = static_cast<int64_t>(queue_.size());
    lanes = lanes_;
    queue_.push_back(parcel);
    changed_.NotifyAll();
  }
  last_of_slot_[{parcel.chunk, parcel.slot}] = number + 1;
  return thread_.joinable() ? OkStatus() : SendNow(parcel, number, lanes);
}

Status HostSender::SendNow(const Parcel& parcel, int64_t number, int lanes) {
  Status sent = TimeParcel(*stream_, [&] {
    return group_->Send(*stream_, parcel.tensor.data, parcel.tensor.NumElements(),
                        parcel.tensor.dtype, kReceiverIndex, LaneOf(number, lanes));
  });
  if (!sent.ok()) {
    Fail(sent);
    return sent;
  }
  base::MutexLock lock(&mu_);
  ++num_sent_;
  changed_.NotifyAll();
  return OkStatus();
}

void HostSender::SendQueued() {
  for (;;) {
    Parcel parcel;
    int64_t number = 0;
    int lanes = 1;
    {
      base::MutexLock lock(&mu_);
      while (!stop_ && status_.ok() && num_sent_ == static_cast<int64_t>(queue_.size())) {
        changed_.Wait(&mu_);
      }
      if (stop_ || !status_.ok()) return;
      number = num_sent_;
      lanes = lanes_;
      parcel = queue_[static_cast<size_t>(number)];
    }
    if (!SendNow(parcel, number, lanes).ok()) return;
  }
}

Status HostSender::WaitSent(kernels::Stream& /*stream*/, int chunk, int slot) {
  const auto last = last_of_slot_.find({chunk, slot});
  return WaitUntilSent(last == last_of_slot_.end() ? 0 : last->second);
}

Status HostSender::WaitAllSent(kernels::Stream& /*stream*/) {
  int64_t count = 0;
  {
    base::MutexLock lock(&mu_);
    count = static_cast<int64_t>(queue_.size());
  }
  return WaitUntilSent(count);
}

Status HostSender::WaitUntilSent(int64_t count) {
  base::MutexLock lock(&mu_);
  while (status_.ok() && num_sent_ < count) changed_.Wait(&mu_);
  return status_;
}

HostReceiver::HostReceiver(std::unique_ptr<comm::ProcessGroup> group, kernels::Device* device,
                           bool overlap)
    : HostEnd(std::move(group), device), overlap_(overlap) {
  CheckLinkMembers(*group_, kReceiverIndex);
  if (!overlap) return;
  thread_ = std::thread([this] { ReceiveAhead(); });
  NameThread(thread_, "mt-link-recv");
}

HostReceiver::~HostReceiver() {
  if (!thread_.joinable()) return;
  bool busy = false;
  {
    base::MutexLock lock(&mu_);
    stop_ = true;
    busy = num_received_ < num_begun_;
    changed_.NotifyAll();
  }
  if (busy) group_->Abort("the receiving stage has left");
  thread_.join();
}

Status HostReceiver::Begin(kernels::Stream& /*stream*/, std::vector<Parcel> parcels,
                           const Pass& pass) {
  base::MutexLock lock(&mu_);
  if (!status_.ok()) return status_;
  CHECK_EQ(num_taken_, static_cast<int64_t>(parcels_.size())) << group_->name();
  for (const auto& [slot, held] : held_) {
    CHECK(!held) << group_->name() << ": chunk " << slot.first << ", slot " << slot.second;
  }
  parcels_ = std::move(parcels);
  lanes_ = pass.lanes;
  num_begun_ = 0;
  num_received_ = 0;
  num_taken_ = 0;
  changed_.NotifyAll();
  return OkStatus();
}

Status HostReceiver::ReceiveNow(const Parcel& parcel, int64_t number, int lanes) {
  Status received = group_->Recv(*stream_, parcel.tensor.data, parcel.tensor.NumElements(),
                                 parcel.tensor.dtype, kSenderIndex, LaneOf(number, lanes));
  if (!received.ok()) {
    Fail(received);
    return received;
  }
  base::MutexLock lock(&mu_);
  ++num_received_;
  changed_.NotifyAll();
  return OkStatus();
}

void HostReceiver::ReceiveAhead() {
  for (;;) {
    Parcel parcel;
    int64_t number = 0;
    int lanes = 1;
    {
      base::MutexLock lock(&mu_);
      while (!stop_ && status_.ok() && !CanBegin()) changed_.Wait(&mu_);
      if (stop_ || !status_.ok()) return;
      parcel = BeginNext();
      number = num_begun_ - 1;
      lanes = lanes_;
    }
    if (!ReceiveNow(parcel, number, lanes).ok()) return;
  }
}

bool HostReceiver::CanBegin() {
  if (num_begun_ == static_cast<int64_t>(parcels_.size())) return false;
  const Parcel& next = parcels_[static_cast<size_t>(num_begun_)];
  return !held_[{next.chunk, next.slot}];
}

Parcel HostReceiver::BeginNext() {
  const Parcel& next = parcels_[static_cast<size_t>(num_begun_++)];
  held_[{next.chunk, next.slot}] = true;
  return next;
}

Status HostReceiver::WaitReady(kernels::Stream& /*stream*/, int chunk, int slot) {
  Parcel parcel;
  int64_t number = 0;
  int lanes = 1;
  {
    base::MutexLock lock(&mu_);
    if (!status_.ok()) return status_;
    CHECK_LT(num_taken_, static_cast<int64_t>(parcels_.size())) << group_->name();
    number = num_taken_++;
    parcel = parcels_[static_cast<size_t>(number)];
    CHECK(parcel.chunk == chunk && parcel.slot == slot)
        << group_->name() << ": parcel " << number << " is for chunk " << parcel.chunk << ", slot "
        << parcel.slot << ", not chunk " << chunk << ", slot " << slot;
    // Otherwise the wait would never end: the slot's previous parcel was not released.
    CHECK(num_begun_ > number || CanBegin()) << group_->name() << ": parcel " << number;
    if (overlap_) {
      while (status_.ok() && num_received_ <= number) changed_.Wait(&mu_);
      return status_;
    }
    BeginNext();
    lanes = lanes_;
  }
  return ReceiveNow(parcel, number, lanes);
}

void HostReceiver::Release(kernels::Stream& /*stream*/, int chunk, int slot) {
  base::MutexLock lock(&mu_);
  if (!status_.ok()) return;
  bool& held = held_[{chunk, slot}];
  CHECK(held) << group_->name() << ": chunk " << chunk << ", slot " << slot;
  held = false;
  changed_.NotifyAll();
}

}  // namespace mt::parallel
