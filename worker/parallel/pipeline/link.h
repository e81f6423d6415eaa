// The two ends of a directed edge between pipeline stages, over a process group of two members
// [sender, receiver]. A parcel is one border tensor of one slot; it is read from and written to the
// slot's own buffer. With overlap on, an end has a thread: the sender's sends what is queued, the
// receiver's receives ahead as soon as the slot of the next parcel is free. With overlap off, both
// work on the calling thread. The bits are the same.
//
// Order is the schedule's: the n-th parcel sent in a pass is the n-th that the receiver was told to
// expect (schedule/check.h proves it). The n-th goes over message edge n modulo `lanes` of its
// group, so that a sender can be 16 lanes ahead of its receiver before it waits.
//
// Errors stick: after the first, every call returns it. Abort ends all waits of this end, and the
// group lets the other one know. Used by one thread, but for Abort and status.
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

namespace mt::pipeline {

inline constexpr int kSenderIndex = 0;  // in a link's group
inline constexpr int kReceiverIndex = 1;

struct Parcel {
  int chunk = 0;  // of the stage at this end
  int slot = 0;
  kernels::Tensor tensor;
};

// What both ends have: the group, its stream, the sticky status.
class LinkEnd {
 public:
  LinkEnd(const LinkEnd&) = delete;
  LinkEnd& operator=(const LinkEnd&) = delete;
  virtual ~LinkEnd() = default;

  // Breaks the group and wakes every wait; the first failure wins. Any thread.
  void Abort(std::string_view reason);
  Status status() const;
  comm::CommStats Stats() const { return group_->Stats(); }

 protected:
  // `device` gives the link's stream and outlives it.
  LinkEnd(std::unique_ptr<comm::ProcessGroup> group, kernels::Device* device);

  // Keeps the first error, wakes the waits and breaks the group.
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
  // Parcels that have not left are lost; wait for them before (WaitAllSent).
  ~Sender() override;

  // Starts a pass; all parcels of the last one have been sent.
  void Begin(int lanes);
  // Once the parcel's producer is done. With overlap: queues it. Else: returns when it has left.
  Status Send(const Parcel& parcel);
  // Until the last parcel sent from this slot, if any, has left the slot's buffer, which may then
  // be overwritten.
  Status WaitSent(int chunk, int slot);
  Status WaitAllSent();

 private:
  void SendQueued();  // the thread
  Status SendNow(const Parcel& parcel, int64_t number, int lanes);
  Status WaitUntilSent(int64_t count);

  int lanes_ GUARDED_BY(mu_) = 1;
  std::vector<Parcel> queue_ GUARDED_BY(mu_);  // of this pass
  int64_t num_sent_ GUARDED_BY(mu_) = 0;       // of queue_, from its front
  // (chunk, slot) -> how many parcels of this pass have left once its own last one has. Used by the
  // calling thread only.
  std::map<std::pair<int, int>, int64_t> last_of_slot_;
  std::thread thread_;  // last: it uses all of the above
};

class Receiver final : public LinkEnd {
 public:
  Receiver(std::unique_ptr<comm::ProcessGroup> group, kernels::Device* device, bool overlap);
  ~Receiver() override;

  // Starts a pass in which these parcels come, in this order; those of the last one have all been
  // waited for and released.
  void Begin(std::vector<Parcel> parcels, int lanes);
  // Until the pass' next parcel, which is this slot's, lies in its tensor.
  Status WaitReady(int chunk, int slot);
  // What WaitReady has returned for this slot is used up; the slot's next parcel may overwrite it.
  void Release(int chunk, int slot);

 private:
  void ReceiveAhead();  // the thread
  // Whether the next parcel's slot is free; marks it held and returns the parcel.
  bool CanBegin() EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Parcel BeginNext() EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status ReceiveNow(const Parcel& parcel, int64_t number, int lanes);

  const bool overlap_;
  int lanes_ GUARDED_BY(mu_) = 1;
  std::vector<Parcel> parcels_ GUARDED_BY(mu_);  // of this pass
  int64_t num_begun_ GUARDED_BY(mu_) = 0;        // receives that have begun
  int64_t num_received_ GUARDED_BY(mu_) = 0;
  int64_t num_taken_ GUARDED_BY(mu_) = 0;                     // by WaitReady
  std::map<std::pair<int, int>, bool> held_ GUARDED_BY(mu_);  // slots that are not free
  std::thread thread_;                                        // last: it uses all of the above
};

}  // namespace mt::pipeline
