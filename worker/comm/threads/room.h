// What the threads of one group share: a reusable meeting of all members, in which each publishes
// its call and may then read the others' memory, and a mailbox per directed edge. A member that
// breaks or leaves ends everybody's waits.
//
// A member may not return from a call while another reads its memory, not even when the call has
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

// One message under way.
struct Letter {
  kernels::DType dtype = kernels::DType::kU8;
  int64_t count = 0;
  std::vector<std::byte> bytes;
};

// What a member shows to the others during a collective: written before a meeting, read between it
// and the next.
struct Desk {
  ProcessGroup::Call call;
  std::vector<std::byte> shard;  // its reduced shard of an all-reduce
};

// Thread-safe. Errors here name the peer only; the group adds itself and the call.
class ThreadsRoom {
 public:
  explicit ThreadsRoom(const std::vector<int>& members)
      : members_(members), desks_(members.size()), present_(members.size(), false) {}

  // The meetings order all accesses: own desk outside of reading phases, any desk within.
  Desk& desk(int index) { return desks_[static_cast<size_t>(index)]; }

  // Creation: registers a member; true when it is the last one.
  StatusOr<bool> Join(const GroupSpec& spec);
  Status AwaitAll(const GroupSpec& spec, base::MonotonicTime deadline);

  // Waits until all members are at the same meeting. With `reading`, the member is then in its
  // reading phase until EndReading.
  Status Meet(bool reading, base::MonotonicTime deadline);
  void EndReading();
  // Waits until nobody reads; reading phases are computations and end by themselves.
  void AwaitReaders();

  // Where messages of one directed edge wait.
  struct Edge {
    int from = 0;
    int to = 0;
    int edge = 0;
    friend auto operator<=>(const Edge&, const Edge&) = default;
  };
  Status Post(const Edge& edge, Letter letter, base::MonotonicTime deadline);
  StatusOr<Letter> Take(const Edge& edge, base::MonotonicTime deadline);

  // The member's group is broken, or destroyed. Nothing more is expected from it.
  void Break(int index);
  void Leave(int index);

 private:
  // OK, or the news that a member is gone: broken (nothing works any more), or left.
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
