// The scheduler behind AsyncDevice, for a program whose ranks are threads: every call of a stream
// is queued. Nothing runs before somebody waits; then calls that are ready run one at a time, in an
// order drawn from a seed, until the wait is over. So the program is searched for missing waits:
// vector clocks find races, whatever order is drawn, and single waits can be left out to see that
// something notices.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "kernels/async/async_call.h"
#include "kernels/async/stream_queues.h"
#include "kernels/core/device.h"

namespace mt::kernels::async {

// Thread-safe. Must outlive all devices and groups that name it.
class AsyncWorld {
 public:
  struct Options {
    uint64_t seed = 0;
    int64_t queue_capacity = 1024;  // a host that enqueues more waits for room
    std::optional<WaitName> drop;   // a wait or store to leave out, of NeededWaits()
  };
  explicit AsyncWorld(Options options)
      : queue_capacity_(options.queue_capacity), queues_(options.seed, std::move(options.drop)) {}
  AsyncWorld(const AsyncWorld&) = delete;
  AsyncWorld& operator=(const AsyncWorld&) = delete;

  // Calls body(host) on `num_hosts` threads and blocks until all have returned. Calls of streams
  // run only while each of these threads waits or has returned, so that a seed gives one order.
  // Where all wait and nothing is ready, every wait ends in a DeviceError that says what each
  // stream's next call waits for. Rethrows the first DeviceError that left a body. Hosts must wait
  // for each other by streams alone. Other threads (of a save beside training) may enqueue and wait
  // too: calls then run whatever the hosts do, so that orders differ from run to run.
  void Run(int num_hosts, const std::function<void(int host)>& body);

  // What was found, in the order of the alphabet: "rank 0: 'y' of linear.Forward on s0 (writes) has
  // no order with 'from' of copy on s1 (reads)".
  std::vector<std::string> Races() const;
  // Memory that was freed while its device may still have used it, as far as waits tell.
  std::vector<std::string> EarlyFrees() const;
  // The waits for events and words that order something: without one of them the order would not
  // exist, neither by what was before nor by other waits with no call in between. One that is left
  // out is a race, unless no memory depends on it, or streams wait for it alone on behalf of the
  // host. And the stores of words that no later store of the same word can do for: without one
  // there is a deadlock, if a host waits for what follows.
  std::vector<WaitName> NeededWaits() const;
  int64_t NumWaits() const;
  // Calls that have run, and a hash of their order.
  std::pair<int64_t, uint64_t> Order() const;

  // For devices and groups. What enqueues or waits throws DeviceError once the world has failed.

  StreamQueue* Open(int rank);
  // Appends a call; blocks while the queue is full.
  void Enqueue(StreamQueue* queue, AsyncCall call);
  void WaitFor(StreamQueue* queue, const std::shared_ptr<const Point>& point);
  // Appends a store of a word, or a wait for one.
  void UseWord(StreamQueue* queue, const WordUse& use);
  void Synchronize(StreamQueue* queue);
  void Synchronize(int rank, const std::shared_ptr<const Point>& point);
  // Runs a call, if any is ready, before it says no.
  bool IsReached(int rank, const std::shared_ptr<const Point>& point);
  // Sets a flag that calls name as `cancelled`.
  void Cancel(std::atomic<bool>* flag);
  // Memory of this rank begins to live; `shared`: others may map it.
  void Allocate(int rank, const void* data, int64_t bytes, bool shared);
  MemoryFrom From(const void* data) const;
  // This rank maps memory of another, which must not be freed before it is unmapped.
  void SetMapped(int rank, const void* data, bool mapped);
  // Takes memory back, which lives until nothing queued uses it.
  void Free(int rank, std::unique_ptr<DeviceBuffer> buffer);
  // Forgets the queued calls of a rank whose device ends.
  void DropRank(int rank);

 private:
  // A host that waits.
  struct HostWait {
    enum class Kind { kRoom, kCalls, kPoint, kPoll } kind = Kind::kPoint;
    int rank = 0;
    const StreamQueue* queue = nullptr;  // kRoom, kCalls
    int64_t num_done = 0;                // kCalls
    std::shared_ptr<const Point> point;  // kPoint, kPoll
    bool poll_is_over = false;
    bool by_host = false;  // of Run

    std::string Describe() const;
  };

  void Await(HostWait wait) EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsOver(const HostWait& wait) const EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether every host waits, for what has not happened.
  bool MayRun() const EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Runs a call if all hosts wait, or for a thread that is none (`alone`) at any time. False if
  // something must happen first.
  bool RunOne(bool alone) EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NothingIsReady() EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ThrowIfFailed() const EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t queue_capacity_;
  mutable base::Mutex mu_;
  base::CondVar changed_;
  StreamQueues queues_ GUARDED_BY(mu_);
  int num_hosts_ GUARDED_BY(mu_) = 0;  // of Run, that have not returned
  std::set<std::thread::id> hosts_ GUARDED_BY(mu_);
  std::vector<HostWait*> waits_ GUARDED_BY(mu_);
  int fruitless_polls_ GUARDED_BY(mu_) = 0;  // in a row
  std::string failure_ GUARDED_BY(mu_);      // empty: none
};

}  // namespace mt::kernels::async
