// The shared state of one group's threads: a reusable barrier at which each member publishes its
// call and may then read the others' memory, and a mailbox per directed edge. A member that breaks
// or leaves ends everybody's waits.
//
// A member must not return from a call while another reads its memory, not even if the call has
// failed: members enter their reading phase under the lock, and a failed call waits for them
// (AwaitReaders).
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/comm/process_group.h"

namespace mt::comm {

// One message in transit.
struct Letter {
  kernels::DType dtype = kernels::DType::kU8;
  int64_t count = 0;
  std::vector<std::byte> bytes;
};

// What a member publishes during a collective: written before a meeting, read by others between it
// and the next.
struct Desk {
  ProcessGroup::Call call;
  std::vector<std::byte> shard;  // its reduced shard, of an all-reduce
};

// Thread-safe. Errors name the peer only; the group adds itself and the call.
class ThreadsRoom {
 public:
  explicit ThreadsRoom(const std::vector<int>& members)
      : members_(members), desks_(members.size()), present_(members.size(), false) {}

  // A member's published call. Meetings order all accesses: outside of reading phases a member uses
  // its own desk only, within them any.
  Desk& desk(int index) { return desks_[static_cast<size_t>(index)]; }

  // Registers a member at creation; true if it is the last one. kFailedPrecondition if its member
  // list differs or it joins twice.
  StatusOr<bool> Join(const GroupSpec& spec);
  // Blocks until all members have joined; kDeadlineExceeded, for every member, once one gives up.
  Status AwaitAll(const GroupSpec& spec, base::MonotonicTime deadline);

  // Blocks until all members have arrived at this meeting. With `reading`, the member is then in
  // its reading phase until EndReading. kUnavailable if a member broke or left, kDeadlineExceeded.
  Status Meet(bool reading, base::MonotonicTime deadline);
  void EndReading();
  // Blocks until no member is in its reading phase. Reading phases are computations and end by
  // themselves.
  void AwaitReaders();

  // Key of the queue of one directed edge's messages.
  struct Edge {
    int from = 0;
    int to = 0;
    int edge = 0;
    friend auto operator<=>(const Edge&, const Edge&) = default;
  };
  // Queues a message; blocks while kSendWindow messages of the edge are unread.
  Status Post(const Edge& edge, Letter letter, base::MonotonicTime deadline);
  // Blocks until a message of the edge is there and returns it.
  StatusOr<Letter> Take(const Edge& edge, base::MonotonicTime deadline);

  // The member's group is broken, or destroyed: nothing more is to be expected from it.
  void Break(int index);
  void Leave(int index);

 private:
  // OK, or kUnavailable with the member that broke the group or has left it.
  Status BrokenStatus() const EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status LeftStatus(int index) const EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status AnyLeft() const EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string Missing() const EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::vector<int> members_;
  std::vector<Desk> desks_;
  base::Mutex mu_;
  base::CondVar changed_;
  std::vector<bool> present_ GUARDED_BY(mu_);
  int num_present_ GUARDED_BY(mu_) = 0;
  bool abandoned_ GUARDED_BY(mu_) = false;
  int num_arrived_ GUARDED_BY(mu_) = 0;
  int64_t meeting_ GUARDED_BY(mu_) = 0;
  int num_readers_ GUARDED_BY(mu_) = 0;
  int broken_by_ GUARDED_BY(mu_) = -1;
  std::map<Edge, std::deque<Letter>> mail_ GUARDED_BY(mu_);
};

}  // namespace mt::comm
