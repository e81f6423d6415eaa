// Links between CPU slots, over a process group of two members [sender, receiver]. With overlap on,
// each end has a thread: the sender's thread sends what is queued, the receiver's receives ahead as
// soon as the slot of the next parcel is free. With overlap off both work on the calling thread.
// The bits are the same. Parcel n uses message edge n modulo `lanes` of the group. All that a
// stream was given is done when a call returns, so streams order nothing here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "worker/parallel/pipeline/link.h"

namespace mt::parallel {

// The common part of both ends: the group, its stream, the sticky status.
class HostEnd {
 protected:
  // Takes ownership of the group. `device` creates the link's stream and must outlive the link.
  HostEnd(std::unique_ptr<comm::ProcessGroup> group, kernels::Device* device);

  void Break(std::string_view reason);
  Status Kept() const LOCKS_EXCLUDED(mu_);

  // Stores the first error, ends all waits and breaks the group.
  void Fail(const Status& why) LOCKS_EXCLUDED(mu_);

  const std::unique_ptr<comm::ProcessGroup> group_;
  const std::unique_ptr<kernels::Stream> stream_;
  mutable base::Mutex mu_;
  base::CondVar changed_;
  Status status_ GUARDED_BY(mu_);
  bool stop_ GUARDED_BY(mu_) = false;
};

class HostSender final : public Sender, private HostEnd {
 public:
  HostSender(std::unique_ptr<comm::ProcessGroup> group, kernels::Device* device, bool overlap);
  // Aborts the group if parcels are still unsent (call WaitAllSent before) and joins the thread.
  ~HostSender() override;

  void Abort(std::string_view reason) override { Break(reason); }
  Status status() const override { return Kept(); }
  comm::CommStats Stats() const override { return group_->Stats(); }

  Status Begin(kernels::Stream& stream, const Pass& pass) override;
  // With overlap it is queued; without, the call blocks until it has been handed to the group.
  Status Send(kernels::Stream& stream, const Parcel& parcel) override;
  Status WaitSent(kernels::Stream& stream, int chunk, int slot) override;
  Status WaitAllSent(kernels::Stream& stream) override;

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

class HostReceiver final : public Receiver, private HostEnd {
 public:
  HostReceiver(std::unique_ptr<comm::ProcessGroup> group, kernels::Device* device, bool overlap);
  ~HostReceiver() override;

  void Abort(std::string_view reason) override { Break(reason); }
  Status status() const override { return Kept(); }
  comm::CommStats Stats() const override { return group_->Stats(); }

  Status Begin(kernels::Stream& stream, std::vector<Parcel> parcels, const Pass& pass) override;
  Status WaitReady(kernels::Stream& stream, int chunk, int slot) override;
  void Release(kernels::Stream& stream, int chunk, int slot) override;

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
