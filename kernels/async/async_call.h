// What a stream's queue holds: a call that has not run yet, with all that it waits for, brings
// about, reads and writes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/async/vector_clock.h"
#include "kernels/async/wait_sites.h"
#include "kernels/async/word_map.h"
#include "kernels/replay/op_call.h"

namespace mt::kernels::async {

using replay::Access;

// Memory that a call reads or writes.
struct MemoryUse {
  std::string name;  // "x", "workspace"
  const void* data = nullptr;
  int64_t bytes = 0;
  Access access = Access::kRead;
};

// The memory of an op, operands and blocks.
std::vector<MemoryUse> UsesOf(const replay::OpCall& call);

// A point in a stream's order: an event as it was recorded at one time, a message that was sent.
struct Point {
  std::string where;  // "s1 'update.AdamW'": the stream and its last call before the point
  bool reached = false;
  VectorClock clock;  // once it is reached
};

struct StreamQueue;

// Calls of several streams that run as one, once each of them is its stream's next: a collective.
struct Meeting {
  std::string what;                  // for messages
  std::vector<StreamQueue*> queues;  // [member] where its call is queued; nullptr: not yet enqueued
  std::function<void()> run;
};

struct AsyncCall {
  std::string label;            // "linear.Forward"
  std::vector<MemoryUse> uses;  // outlive the call
  std::function<void()> run;    // may be empty; DeviceError from it fails the world

  struct After {
    std::shared_ptr<const Point> point;
    // False: the call runs later than the point, but nobody may rely on it (flow control).
    bool orders = true;
  };
  std::vector<After> after;
  std::shared_ptr<Point> reaches;    // reached once the call has run; may be null
  std::shared_ptr<Meeting> meeting;  // may be null; then `run` is not used
  size_t member = 0;                 // of the meeting
  // Once true, the call is ready and does nothing: its group is broken. May be null.
  std::shared_ptr<const std::atomic<bool>> cancelled;
  std::optional<WordUse> word;   // that it stores or waits for
  std::optional<WaitName> wait;  // of a Stream::Wait, WaitValue or WriteValue

  std::shared_ptr<const VectorClock> host;  // what the host knew done as it enqueued the call
};

}  // namespace mt::kernels::async
