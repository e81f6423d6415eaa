// The two ends of a directed edge between pipeline stages, over a process group of two members
// [sender, receiver]. A parcel is one boundary tensor of one slot; it is read from and written to
// the slot's own buffer. With overlap on, each end has a thread: the sender's thread sends what is
// queued, the receiver's receives ahead as soon as the slot of the next parcel is free. With
// overlap off both work on the calling thread. The bits are the same.
//
// The order is the schedule's: the n-th parcel sent in a pass is the n-th that the receiver expects
// (schedule/check.h proves it). Parcel n uses message edge n modulo `lanes` of the group, so that a
// sender can be kSendWindow parcels per lane ahead of its receiver before it waits.
//
// The first error is kept and returned by every later call. Abort ends all waits of this end, and
// the group notifies the other end. Used by one thread, except for Abort and status.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "kernels/core/device.h"
#include "kernels/core/tensor.h"
#include "worker/comm/process_group.h"

namespace mt::parallel {

inline constexpr int kSenderIndex = 0;  // index in a link's group
inline constexpr int kReceiverIndex = 1;

// One tensor to be sent or received.
struct Parcel {
  int chunk = 0;  // chunk of the stage at this end
  int slot = 0;
  kernels::Tensor tensor;
};

// The common part of both ends: the group, its stream, the sticky status.
class LinkEnd {
 public:
  LinkEnd(const LinkEnd&) = delete;
  LinkEnd& operator=(const LinkEnd&) = delete;
  virtual ~LinkEnd() = default;

  // Breaks the group and ends every wait; the first failure wins. Any thread.
  void Abort(std::string_view reason);
  Status status() const;
  comm::CommStats Stats() const { return group_->Stats(); }

 protected:
  // Takes ownership of the group. `device` creates the link's stream and must outlive the link.
  LinkEnd(std::unique_ptr<comm::ProcessGroup> group, kernels::Device* device);

  // Stores the first error, ends all waits and breaks the group.
  void Fail(const Status& why) LOCKS_EXCLUDED(mu_);

  const std::unique_ptr<comm::ProcessGroup> group_;
  const std::unique_ptr<kernels::Stream> stream_;
  mutable base::Mutex mu_;
  base::CondVar changed_;
  Status status_ GUARDED_BY(mu_);
  bool stop_ GUARDED_BY(mu_) = false;
};

class Sender final : public LinkEnd {
 public:
  Sender(std::unique_ptr<comm::ProcessGroup> group, kernels::Device* device, bool overlap);
  // Aborts the group if parcels are still unsent (call WaitAllSent before) and joins the thread.
  ~Sender() override;

  // Starts a pass. CHECKs that all parcels of the previous one have been sent.
  void Begin(int lanes);
  // Sends a parcel whose data is complete. With overlap it is queued; without, the call blocks
  // until it has been handed to the group.
  Status Send(const Parcel& parcel);
  // Blocks until the slot's latest parcel of this pass, if any, has been sent and its buffer may be
  // overwritten.
  Status WaitSent(int chunk, int slot);
  // Blocks until every parcel of this pass has been sent.
  Status WaitAllSent();

 private:
  void SendQueued();  // body of the thread
  Status SendNow(const Parcel& parcel, int64_t number, int lanes);
  Status WaitUntilSent(int64_t count);

  int lanes_ GUARDED_BY(mu_) = 1;
  std::vector<Parcel> queue_ GUARDED_BY(mu_);  // parcels of this pass
  int64_t num_sent_ GUARDED_BY(mu_) = 0;       // how many of queue_ have been sent
  // (chunk, slot) -> value of num_sent_ at which its latest parcel has been sent. Used by the
  // calling thread only.
  std::map<std::pair<int, int>, int64_t> last_of_slot_;
  std::thread thread_;  // last: it uses all of the above
};

class Receiver final : public LinkEnd {
 public:
  Receiver(std::unique_ptr<comm::ProcessGroup> group, kernels::Device* device, bool overlap);
  ~Receiver() override;

  // Starts a pass in which these parcels arrive, in this order. CHECKs that all parcels of the
  // previous pass were waited for and released.
  void Begin(std::vector<Parcel> parcels, int lanes);
  // Blocks until the pass' next parcel, which must be this slot's (CHECK), is in its tensor.
  Status WaitReady(int chunk, int slot);
  // Declares the slot's tensor consumed: its next parcel may overwrite it.
  void Release(int chunk, int slot);

 private:
  void ReceiveAhead();  // body of the thread
  // CanBegin: true if there is a next parcel and its slot is free. BeginNext: marks that slot as
  // held and returns the parcel.
  bool CanBegin() EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Parcel BeginNext() EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status ReceiveNow(const Parcel& parcel, int64_t number, int lanes);

  const bool overlap_;
  int lanes_ GUARDED_BY(mu_) = 1;
  std::vector<Parcel> parcels_ GUARDED_BY(mu_);  // parcels of this pass
  int64_t num_begun_ GUARDED_BY(mu_) = 0;        // receives started
  int64_t num_received_ GUARDED_BY(mu_) = 0;
  int64_t num_taken_ GUARDED_BY(mu_) = 0;  // parcels that WaitReady was called for
  std::map<std::pair<int, int>, bool> held_ GUARDED_BY(mu_);  // slots in use
  std::thread thread_;                                        // last: it uses all of the above
};

}  // namespace mt::parallel
