// Words in the members' memory by which their streams wait for each other: each member stores the
// number of its call in a word that it has at each peer, and waits for those that its peers store
// here. No thread block and no host waits. The end of all waits, too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/base/mutex.h"
#include "kernels/core/device.h"
#include "worker/comm/rescue.h"

namespace mt::comm {

// Calls of one thread, but for Break, BreakAgain, IsDone and Entered, which any may make. Numbers
// of calls ascend, modulo 2^32.
class PeerWords {
 public:
  enum Kind : uint8_t {
    kEntered,  // the member's memory may be written for this call
    kArrived,  // the member has written what it has for this call
  };
  static constexpr int kKinds = 2;
  static int64_t Bytes(int members) { return kKinds * members * int64_t{sizeof(uint32_t)}; }

  struct Args {
    Rescue* rescue = nullptr;           // outlives the words
    kernels::Device* device = nullptr;  // the same
    int my_index = 0;
    std::unique_ptr<kernels::DeviceBuffer> own;  // Bytes(), zeroed
    // The same of each peer, mapped, by index; null at this member's.
    std::vector<std::unique_ptr<kernels::DeviceBuffer>> peers;
  };
  explicit PeerWords(Args args);

  // In the order of `stream`.
  void Tell(kernels::Stream& stream, int peer, Kind kind, uint32_t number);
  void Await(kernels::Stream& stream, int peer, Kind kind, uint32_t number);
  // Every call ends so, behind its last store, on the stream of that.
  void EndCall(kernels::Stream& stream, uint32_t number) LOCKS_EXCLUDED(mu_);

  // Ends all waits for this member's words. Stores of a peer that are still on their way may undo
  // it: waits are sure to be over once the peers have broken theirs as well or, where a peer has
  // died with stores on their way, at the next BreakAgain. Throws DeviceError where the device has
  // failed.
  void Break() LOCKS_EXCLUDED(mu_);
  // Nothing unless the words are broken. Never waits.
  void BreakAgain() LOCKS_EXCLUDED(mu_);
  // The clean end: what this member has enqueued is done, and no peer's memory is used any more.
  // False, and nothing, where the words are broken or left.
  bool Leave() LOCKS_EXCLUDED(mu_);

  // Whether the device has done the latest call.
  bool IsDone() LOCKS_EXCLUDED(mu_);
  // The calls that the peers have entered, by index, now; this member's own is 0.
  std::vector<uint32_t> Entered();

 private:
  uint32_t* Own(int peer, Kind kind) const;
  uint32_t* At(int peer, Kind kind) const;
  // That end all waits for numbers up to some beyond `number`.
  std::vector<Rescue::Store> OwnFarAhead(uint32_t number) const;
  std::vector<Rescue::Store> PeersFarAhead(uint32_t number) const;
  int size() const { return static_cast<int>(args_.peers.size()); }

  Args args_;
  base::Mutex mu_;
  bool broken_ GUARDED_BY(mu_) = false;
  bool left_ GUARDED_BY(mu_) = false;
  // Behind the latest call and the one before it, in turn.
  const std::array<std::unique_ptr<kernels::Event>, 2> ends_;
  size_t latest_ GUARDED_BY(mu_) = 0;
  uint32_t latest_number_ GUARDED_BY(mu_) = 0;
};

}  // namespace mt::comm
