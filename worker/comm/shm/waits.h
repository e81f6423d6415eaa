// How a member waits for the others, and how every wait ends. A member that changes something rings
// those that may wait for it; a member waits by looking for a few microseconds, giving its core to
// others between two looks, and then by sleeping until it is rung. At least every kLookAtSeats it
// looks whether all peers are still in their seats.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/comm/process_group.h"
#include "worker/comm/shm/segment.h"

namespace mt::comm {

inline constexpr std::chrono::milliseconds kLookAtSeats{25};

// Waiting belongs to one thread; Break() may be called by any.
class ShmWaits {
 public:
  // This member has its seat in the segment, which must outlive the object.
  ShmWaits(GroupSpec spec, ShmSegment* segment, std::chrono::milliseconds look_at_seats);

  // Blocks until `counter`, which `peer` raises, is at least `target`. kUnavailable: that peer has
  // gone or left, or another one has gone or broken the group; kDeadlineExceeded; kAborted after
  // Break().
  Status Await(const std::atomic<uint64_t>& counter, uint64_t target, int peer,
               base::MonotonicTime deadline);
  // kUnavailable if `peer` has left or any has broken the group, without a look at the seats.
  Status CheckPeer(int peer) const;

  // Wakes a peer that may wait for what this member has just raised.
  void Ring(int peer) const;
  void RingAll() const;

  // Ends all waits of this member and tells its peers.
  void Break();
  // The member leaves; unless it is broken, that ends only waits for it.
  void Leave();

 private:
  bool Spin(const std::atomic<uint64_t>& counter, uint64_t target) const;
  // OK, or why a wait for this peer cannot end well.
  Status Trouble(int peer, bool look_at_seats) const;
  // Why this peer is no longer there, or nullptr.
  const char* WhyGone(int index, bool look_at_seats) const;
  std::string DescribePeer(int index) const;
  MemberBlock& me() const { return segment_->member(spec_.my_index); }
  int size() const { return static_cast<int>(spec_.members.size()); }

  const GroupSpec spec_;
  ShmSegment* const segment_;
  const std::chrono::milliseconds look_at_seats_;
  std::atomic<bool> broken_ = false;
};

}  // namespace mt::comm
