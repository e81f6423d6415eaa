// The connections of one member of a group: a TCP pair over Gloo's transport to every other member,
// or to those that a topology names, with waits that always end. Gloo's own collectives are not
// used, because their waits cannot be interrupted and a peer that dies in the middle of a message
// wakes nobody. Here a Pulse interrupts every wait, so that the waiting thread checks the deadline,
// the abort flag and two receives per peer: the canary, which is never answered, so Gloo fails it
// when the connection ends; and the goodbye, which a member sends when it leaves a healthy group. A
// connection that ends without a goodbye ends every wait of the group.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
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

// Memory registered with Gloo, for one operation at a time. Destroying it ends Gloo's use of the
// memory, even in the middle of an operation.
using GlooBuffer = gloo::transport::UnboundBuffer;

// A slot is an independent, ordered stream of messages between two members (Gloo's tag).
inline constexpr uint64_t kCanarySlot = 1;
inline constexpr uint64_t kGoodbyeSlot = 2;
inline constexpr uint64_t kOpeningSlot = 3;
inline constexpr uint64_t kLaneSlot = 4;  // and 5: two segments in flight
inline constexpr uint64_t kMeetingSlot = 6;
inline constexpr uint64_t kEdgeSlot = 16;  // and up: two per edge

// With whom a member is connected, by index in rising order. If a is among b's, b is among a's.
using Topology = std::function<std::vector<int>(int member)>;

// Posting and waiting belong to one thread; Break() may be called by any. Gloo's exceptions are
// caught and returned as Status.
class GlooMesh {
 public:
  // Exchanges addresses through the store and connects to the peers of this member; without a
  // topology to all others. Returns once all of them have connected to this one. Otherwise a member
  // that breaks or leaves early could close a connection that Gloo is still accepting, which would
  // terminate the peer's process in Gloo's loop thread. Errors: kDeadlineExceeded, kUnavailable
  // (with the peer), kFailedPrecondition if members disagree on the group.
  static StatusOr<std::unique_ptr<GlooMesh>> Connect(
      const std::shared_ptr<gloo::transport::Device>& device, const GroupSpec& spec,
      RendezvousStore* store, base::MonotonicTime deadline, const Topology& topology = nullptr);
  ~GlooMesh();
  GlooMesh(const GlooMesh&) = delete;
  GlooMesh& operator=(const GlooMesh&) = delete;

  // Registers memory for one operation at a time. The memory must outlive the buffer, and the
  // buffer must not outlive the mesh.
  std::unique_ptr<GlooBuffer> Register(const void* data, int64_t bytes);

  // A range of a buffer, in bytes.
  struct Part {
    int64_t offset = 0;
    int64_t bytes = 0;
  };
  // Start a transfer and return; bytes > 0. A receive must be at least as large as its message:
  // callers compare headers first, because a larger message terminates the process in Gloo's loop
  // thread.
  Status PostSend(GlooBuffer& buffer, int peer, uint64_t slot, Part part);
  Status PostRecv(GlooBuffer& buffer, int peer, uint64_t slot, Part part);
  // Block until the operation is complete. kUnavailable: the peer has gone, or another member was
  // lost; kDeadlineExceeded; kAborted after Break().
  Status WaitSend(GlooBuffer& buffer, int peer, base::MonotonicTime deadline);
  Status WaitRecv(GlooBuffer& buffer, int peer, base::MonotonicTime deadline);

  // Closes all connections and ends all waits. Any thread.
  void Break();

 private:
  GlooMesh(GroupSpec spec, std::shared_ptr<gloo::transport::Context> context,
           std::vector<int> peers);

  struct Waiting {
    GlooBuffer* buffer = nullptr;
    Direction direction = Direction::kRecv;
    int peer = 0;

    // Waits; false if interrupted. Throws Gloo's errors.
    bool For(std::chrono::milliseconds timeout) const;
  };
  enum class Presence { kThere, kLeft, kLost };
  // The two receives that watch a peer, and what they have shown. Unused for this member itself.
  struct Watch {
    std::unique_ptr<GlooBuffer> canary;
    std::unique_ptr<GlooBuffer> goodbye;
    Presence presence = Presence::kThere;  // as of the last look
    std::string reason;                    // why it is not kThere
  };

  Status ExchangeAndConnect(RendezvousStore* store, base::MonotonicTime deadline,
                            const Topology& topology);
  Status PostWatches();
  // Exchanges one byte with every peer, as a barrier.
  Status Meet(base::MonotonicTime deadline);
  void SayGoodbye();
  Status Wait(const Waiting& waiting, base::MonotonicTime deadline);
  // Called when the peer is gone: OK if the operation completed before, else the error to return.
  Status LastLook(const Waiting& waiting, const std::string& reason);
  // Checks a peer's canary and goodbye without blocking.
  Presence Look(int peer);
  // Index of the first peer that is lost, or -1.
  int FindLost();
  Status PeerLost(int peer, const std::string& reason);
  // "rank 2 (world 6)"
  std::string DescribePeer(int peer) const;
  Watch& watch(int peer) { return watches_[static_cast<size_t>(peer)]; }

  const GroupSpec spec_;
  const std::vector<int> peers_;  // whom this member is connected with
  const std::shared_ptr<gloo::transport::Context> context_;
  std::atomic<bool> broken_ = false;
  std::byte no_byte_{};  // payload of canaries and goodbyes
  std::vector<Watch> watches_;
  Pulse pulse_;
};

}  // namespace mt::comm
