// The queues of all streams of a world: which next calls are ready, what it means to run one, and
// what that says about races. Clocks are advanced as calls run but do not depend on the order in
// which they do.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/async/access_map.h"
#include "kernels/async/async_call.h"
#include "kernels/async/mapped_memory.h"
#include "kernels/async/run_order.h"
#include "kernels/async/wait_sites.h"
#include "kernels/core/device.h"

namespace mt::kernels::async {

// A stream's calls that have not run.
struct StreamQueue {
  int rank = 0;
  int ordinal = 0;   // among the rank's streams, in the order of creation
  size_t index = 0;  // in vector clocks
  std::deque<AsyncCall> calls;
  int64_t num_enqueued = 0;
  int64_t num_done = 0;
  VectorClock clock;                        // all that comes before the next call
  std::string last = "start";               // label of the last call enqueued
  std::shared_ptr<const VectorClock> host;  // that the last call ran with

  // Waits since the last call that uses memory, none of which another one makes redundant, and what
  // they order.
  std::vector<std::pair<WaitName, VectorClock>> waits;

  std::string Name() const;  // "s1"
};

// What begins at an address.
struct MemoryFrom {
  int64_t bytes = 0;    // of one allocation; 0: none
  bool shared = false;  // others may map it
};

// Not thread-safe. A rank's device and its host count as known by the rank's number.
class StreamQueues {
 public:
  StreamQueues(uint64_t seed, std::optional<WaitName> drop)
      : order_(seed), sites_(std::move(drop)) {}

  StreamQueue* Open(int rank);
  void Push(StreamQueue* queue, AsyncCall call);
  // Appends a wait, unless it is to be left out.
  void PushWait(StreamQueue* queue, const std::shared_ptr<const Point>& point);
  // Appends a store of a word or a wait for one, unless it is to be left out.
  void PushWord(StreamQueue* queue, const WordUse& use);
  // Runs one call that is ready; false if there is none. Passes on what the call throws.
  bool RunOne();
  // What each stream's next call waits for, a line each.
  std::string DescribeNext() const;
  // The rank's host knows all of `clock` done.
  void Learn(int rank, const VectorClock& clock);
  // Begins the life of a rank's memory: whoever accesses it, it counts as this rank's.
  void Allocate(int rank, const void* data, int64_t bytes, bool shared);
  MemoryFrom From(const void* data) const;
  // The rank maps memory of another from there on, or no more.
  void SetMapped(int rank, const void* data, bool mapped);
  // Ends the life of a rank's memory; keeps it while queued calls use it.
  void Free(int rank, std::unique_ptr<DeviceBuffer> buffer);
  // Forgets a rank's queued calls.
  void DropRank(int rank);

  const RunOrder& order() const { return order_; }
  const WaitSites& sites() const { return sites_; }
  const std::set<std::string>& races() const { return races_; }
  const std::set<std::string>& early_frees() const { return early_frees_; }

 private:
  struct Rank {
    std::shared_ptr<const VectorClock> host = std::make_shared<const VectorClock>();
    AccessMap accesses;
    int num_streams = 0;
  };

  struct Allocation {
    uintptr_t end = 0;
    int rank = 0;
    bool shared = false;
  };

  static bool IsReady(const StreamQueue& queue);
  std::string WhatFor(const StreamQueue& queue) const;
  const Allocation* AllocationOf(const void* data) const;
  std::vector<StreamQueue*> Ready() const;
  void RunNext(StreamQueue* queue);
  // `meeting` is shared, since the calls that own it are taken off.
  void RunMeeting(std::shared_ptr<Meeting> meeting);
  // Takes the next call off; the queue's clock then has all that comes before it.
  AsyncCall TakeNext(StreamQueue* queue);
  void EnterWait(StreamQueue* queue, const WaitName& wait, const VectorClock& point);
  // Counts a call that uses memory in the queue's clock.
  void EnterUses(StreamQueue* queue, const AsyncCall& call);
  void EnterUse(const StreamQueue& queue, const MemoryUse& use, const AsyncCall& call,
                int64_t number);
  void StoreWord(const StreamQueue& queue, const AsyncCall& call);
  // Notes calls, queued on any stream, that use memory which is freed; false if there are none.
  bool NoteQueuedUses(int rank, const void* data, int64_t bytes);
  static void End(StreamQueue* queue, const AsyncCall& call);

  RunOrder order_;
  WaitSites sites_;
  WordMap words_;
  std::map<int, Rank> ranks_;
  std::map<uintptr_t, Allocation> allocations_;                         // by their beginning
  std::map<std::pair<int, int>, std::unique_ptr<StreamQueue>> queues_;  // by rank and ordinal
  size_t num_opened_ = 0;
  std::set<std::string> races_, early_frees_;
  MappedMemory mapped_;
  std::vector<std::unique_ptr<DeviceBuffer>> still_used_;
};

}  // namespace mt::kernels::async
