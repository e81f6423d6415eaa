// The two ends of a directed edge between pipeline stages. A parcel is one boundary tensor of one
// slot; it is read from and written to the slot's own buffer. Calls take the stream that computes:
// where the device enqueues, they order streams and return, and where it does not they block until
// what they promise is so. Three kinds of links stand behind them: host_link.h (CPU slots),
// peer_link.h (GPUs of one host) and stream_link.h (GPUs that reach each other by NCCL alone).
//
// The order is the schedule's: the n-th parcel sent in a pass is the n-th that the receiver expects
// (schedule/check.h proves it).
//
// The first error is kept and returned by every later call. Abort ends all waits of this end, on
// the device too. Used by one thread, except for Abort, status and Stats.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "kernels/core/device.h"
#include "kernels/core/tensor.h"
#include "worker/comm/process_group.h"
#include "worker/parallel/comm_spans.h"

namespace mt::parallel {

inline constexpr int kSenderIndex = 0;  // index in a link's group
inline constexpr int kReceiverIndex = 1;

// One tensor to be sent or received.
struct Parcel {
  int chunk = 0;  // chunk of the stage at this end
  int slot = 0;
  kernels::Tensor tensor;
};

// What both ends know of a pass.
struct Pass {
  // Message edges that take turns: a sender can be kSendWindow parcels per lane ahead of its
  // receiver before it waits.
  int lanes = 1;
  // Names the sequence of parcels: passes of one id have the same ones.
  int64_t id = 0;
};

class LinkEnd {
 public:
  LinkEnd(const LinkEnd&) = delete;
  LinkEnd& operator=(const LinkEnd&) = delete;
  virtual ~LinkEnd() = default;

  // Breaks the link and ends every wait; the first failure wins. Any thread.
  virtual void Abort(std::string_view reason) = 0;
  virtual Status status() const = 0;
  virtual comm::CommStats Stats() const = 0;
  // Whether the peer writes tensors of this end, or this one the peer's, where they lie: their
  // memory must be of the kind that devices share (MemoryKind::kShared).
  virtual bool shares_memory() const { return false; }

  // The clean end of a link whose parcels have all been received; both are called, in this order,
  // by the thread that uses the link. Detach lets go of the peer's memory and does not wait for it.
  // After AwaitPeer the peer has let go of this end's, which may be freed. On a broken link both
  // return at once. May throw DeviceError.
  virtual void Detach() {}
  virtual void AwaitPeer() {}

 protected:
  LinkEnd() = default;
};

class Sender : public LinkEnd {
 public:
  // Times what parcels of this use take on their way; before the first pass. `spans` must outlive
  // the passes.
  void TimeWith(CommSpans* spans, CommUse use) {
    spans_ = spans;
    use_ = use;
  }
  // Starts a pass. CHECKs that all parcels of the previous one have been sent.
  virtual Status Begin(kernels::Stream& stream, const Pass& pass) = 0;
  // Sends a parcel whose data `stream` completes.
  virtual Status Send(kernels::Stream& stream, const Parcel& parcel) = 0;
  // What `stream` is given from now on may overwrite the buffer of the slot's latest parcel.
  virtual Status WaitSent(kernels::Stream& stream, int chunk, int slot) = 0;
  // The same for every parcel; on the CPU all of them have been sent when it returns.
  virtual Status WaitAllSent(kernels::Stream& stream) = 0;

 protected:
  // Sends a parcel by `call`, on a stream of the link.
  template <class Call>
  Status TimeParcel(kernels::Stream& stream, const Call& call) {
    return TimeCall(spans_, stream, use_, SpanKind::kBeside, call);
  }

 private:
  CommSpans* spans_ = nullptr;
  CommUse use_ = CommUse::kActivation;
};

class Receiver : public LinkEnd {
 public:
  // Starts a pass in which these parcels arrive, in this order. CHECKs that all parcels of the
  // previous pass were waited for and released.
  virtual Status Begin(kernels::Stream& stream, std::vector<Parcel> parcels, const Pass& pass) = 0;
  // What `stream` is given from now on finds the pass' next parcel, which must be this slot's
  // (CHECK), in its tensor.
  virtual Status WaitReady(kernels::Stream& stream, int chunk, int slot) = 0;
  // Whether Expect does anything: links whose parcels come by themselves need not be told.
  virtual bool BeginsReceives() const { return false; }
  // Says that the next `count` parcels are waited for soon behind the action that `stream` will be
  // given now, so that the link may begin to receive them beside that action, as far as their slots
  // are free.
  virtual Status Expect(kernels::Stream& /*stream*/, int /*count*/) { return OkStatus(); }
  // Declares the slot's tensor consumed by what `stream` was given so far: its next parcel may
  // overwrite it.
  virtual void Release(kernels::Stream& stream, int chunk, int slot) = 0;
};

// CHECKs that a link's group has two members, of which this end is the one with this index.
void CheckLinkMembers(const comm::ProcessGroup& group, int own_index);

}  // namespace mt::parallel
