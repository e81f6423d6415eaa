// Links between GPUs over a group whose calls enqueue (NCCL), for neighbours that cannot write each
// other's memory: of two hosts, or without a path between the GPUs. Sends and receives lie on a
// stream of the link. A receive is begun one action ahead (Expect), beside the action before the
// one that needs it, and not earlier unless the schedule would deadlock: a receive that waits holds
// the thread blocks it takes (schedule/rendezvous.h).
//
// The first message between two members connects them, for which NCCL blocks the host until both
// have come. So both ends send one as soon as the link is made (WarmUp), every rank in the order of
// its edges.
#pragma once

#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/parallel/pipeline/link.h"

namespace mt::parallel {

class StreamSender final : public Sender {
 public:
  StreamSender(std::unique_ptr<comm::ProcessGroup> group, kernels::Device* device);

  void Abort(std::string_view reason) override { group_->Abort(reason); }
  Status status() const override { return group_->status(); }
  comm::CommStats Stats() const override { return group_->Stats(); }
  Status Begin(kernels::Stream& stream, const Pass& pass) override;
  Status Send(kernels::Stream& stream, const Parcel& parcel) override;
  Status WaitSent(kernels::Stream& stream, int chunk, int slot) override;
  Status WaitAllSent(kernels::Stream& stream) override;
  void Detach() override;

  // Sends the message that connects the ends and waits until it has arrived.
  Status WarmUp();

 private:
  const std::unique_ptr<comm::ProcessGroup> group_;
  kernels::Device* const device_;
  const std::unique_ptr<kernels::Stream> stream_;
  const std::unique_ptr<kernels::Event> ready_;
  std::map<std::pair<int, int>, std::unique_ptr<kernels::Event>> sent_;  // by chunk and slot
};

class StreamReceiver final : public Receiver {
 public:
  StreamReceiver(std::unique_ptr<comm::ProcessGroup> group, kernels::Device* device);

  void Abort(std::string_view reason) override { group_->Abort(reason); }
  Status status() const override { return group_->status(); }
  comm::CommStats Stats() const override { return group_->Stats(); }
  Status Begin(kernels::Stream& stream, std::vector<Parcel> parcels, const Pass& pass) override;
  Status WaitReady(kernels::Stream& stream, int chunk, int slot) override;
  bool BeginsReceives() const override { return true; }
  Status Expect(kernels::Stream& stream, int count) override;
  void Release(kernels::Stream& stream, int chunk, int slot) override;
  void Detach() override;

  // Receives the sender's message and waits for it.
  Status WarmUp();

 private:
  // Begins to receive the next parcel behind what `stream` was given so far.
  Status Receive(kernels::Stream& stream);

  const std::unique_ptr<comm::ProcessGroup> group_;
  kernels::Device* const device_;
  const std::unique_ptr<kernels::Stream> stream_;
  const std::unique_ptr<kernels::Event> begin_;
  std::vector<Parcel> parcels_;           // of this pass
  size_t num_begun_ = 0, num_taken_ = 0;  // of them; no slot is among those between twice
  // By chunk and slot.
  std::map<std::pair<int, int>, bool> held_;
  std::map<std::pair<int, int>, std::unique_ptr<kernels::Event>> received_;
};

}  // namespace mt::parallel
