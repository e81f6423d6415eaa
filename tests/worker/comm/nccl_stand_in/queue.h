// What the stand-in takes for a stream: a queue of calls that some thread runs one after the other.
// Plain C, because two libraries that are built apart agree on it.
#pragma once

namespace mt::comm::stand_in {

struct Queue {
  // Appends call(context) and returns. Thread-safe.
  void (*enqueue)(void* self, void (*call)(void* context), void* context) = nullptr;
  void* self = nullptr;
};

}  // namespace mt::comm::stand_in
