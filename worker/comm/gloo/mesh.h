// The connections of one group: a TCP pair to every other member over Gloo's transport, and waits
// that end. Why not Gloo's own collectives: their waits cannot be ended from outside, and a peer
// that dies in the middle of a message wakes nobody. Waits here are interrupted by a Pulse to look
// at the deadline, at the abort flag, and at two receives per peer: the canary, which is never
// answered, so that Gloo fails it when the connection ends; and the goodbye, answered by a member
// that leaves an unbroken group. A connection that ends without a goodbye ends every wait.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/comm/gloo/pulse.h"
#include "worker/comm/process_group.h"
#include "worker/comm/rendezvous_store.h"

namespace mt::comm {

// Memory registered for messages; one operation at a time. Its destruction ends Gloo's use of the
// memory, also where an operation is not done.
using GlooBuffer = gloo::transport::UnboundBuffer;

// Slots separate streams of messages between two members; within a slot messages keep their order.
inline constexpr uint64_t kCanarySlot = 1;
inline constexpr uint64_t kGoodbyeSlot = 2;
inline constexpr uint64_t kOpeningSlot = 3;
inline constexpr uint64_t kLaneSlot = 4;  // and 5: two segments in flight
inline constexpr uint64_t kMeetingSlot = 6;
inline constexpr uint64_t kEdgeSlot = 16;  // and up: two per edge

// Posting and waiting are one thread's; Break() is any thread's. No exception leaves.
class GlooMesh {
 public:
  // Exchanges addresses through the store and connects to every member. Returns once all members
  // have connected to all others: one that breaks or leaves later closes no connection that Gloo is
  // still accepting, which would end the peer's process in Gloo's loop thread.
  static StatusOr<std::unique_ptr<GlooMesh>> Connect(
      const std::shared_ptr<gloo::transport::Device>& device, const GroupSpec& spec,
      RendezvousStore* store, base::MonotonicTime deadline);
  ~GlooMesh();
  GlooMesh(const GlooMesh&) = delete;
  GlooMesh& operator=(const GlooMesh&) = delete;

  // Buffers may outlive nothing but the mesh.
  std::unique_ptr<GlooBuffer> Register(const void* data, int64_t bytes);

  // A part of a buffer, in bytes.
  struct Part {
    int64_t offset = 0;
    int64_t bytes = 0;
  };
  // Post and return. bytes > 0. A receive must be at least as large as its message: callers compare
  // headers first, since a larger message ends the process in Gloo's loop thread.
  Status PostSend(GlooBuffer& buffer, int peer, uint64_t slot, Part part);
  Status PostRecv(GlooBuffer& buffer, int peer, uint64_t slot, Part part);
  // kUnavailable: the peer is gone, or any other is without a goodbye; kDeadlineExceeded; kAborted
  // after Break().
  Status WaitSend(GlooBuffer& buffer, int peer, base::MonotonicTime deadline);
  Status WaitRecv(GlooBuffer& buffer, int peer, base::MonotonicTime deadline);

  // Closes all connections and ends all waits.
  void Break();

 private:
  GlooMesh(GroupSpec spec, std::shared_ptr<gloo::transport::Context> context);

  struct Waiting {
    GlooBuffer* buffer = nullptr;
    Direction direction = Direction::kRecv;
    int peer = 0;

    // False: interrupted. Throws Gloo's errors.
    bool For(std::chrono::milliseconds timeout) const;
  };
  enum class Presence { kThere, kLeft, kLost };
  // What is posted for each peer besides its messages; nothing for this member.
  struct Watch {
    std::unique_ptr<GlooBuffer> canary;
    std::unique_ptr<GlooBuffer> goodbye;
    Presence presence = Presence::kThere;  // as far as looked at
    std::string reason;                    // why it is not there
  };

  Status ExchangeAndConnect(RendezvousStore* store, base::MonotonicTime deadline);
  Status PostWatches();
  // A byte to and from every peer.
  Status Meet(base::MonotonicTime deadline);
  void SayGoodbye();
  Status Wait(const Waiting& waiting, base::MonotonicTime deadline);
  // What follows once the peer is gone: OK if the operation was done before.
  Status LastLook(const Waiting& waiting, const std::string& reason);
  Presence Look(int peer);
  // The first peer that is lost, or -1.
  int FindLost();
  Status PeerLost(int peer, const std::string& reason);
  // "rank 2 (world 6)"
  std::string DescribePeer(int peer) const;
  Watch& watch(int peer) { return watches_[static_cast<size_t>(peer)]; }
  std::vector<int> Peers() const;

  const GroupSpec spec_;
  const std::shared_ptr<gloo::transport::Context> context_;
  std::atomic<bool> broken_ = false;
  std::byte no_byte_{};  // what canaries and goodbyes carry
  std::vector<Watch> watches_;
  Pulse pulse_;
};

}  // namespace mt::comm
