// How far a run has come, on one rank. A GPU runs up to two steps behind its host, so that a step
// is enqueued, timed, read and acted upon at different moments; the cursor keeps the newest step of
// each kind and the order between them:
//
//   start <= acted <= read <= counted <= last <= acted + 2
//
// What all ranks decide together follows from these numbers alone, so they must be the same on
// every rank at the same point of the loop.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "worker/engine/step_ring.h"

namespace mt::train {

// A plain value; one thread. Each operation moves one counter by one step and CHECKs the order.
class StepCursor {
 public:
  // The run goes on from the end of this step; 0: it begins.
  explicit StepCursor(int64_t start = 0)
      : start_(start), last_(start), counted_(start), read_(start), acted_(start) {}

  int64_t start() const { return start_; }      // done before this run
  int64_t last() const { return last_; }        // enqueued; on a CPU slot done
  int64_t counted() const { return counted_; }  // over on the device: its times are known
  int64_t read() const { return read_; }        // its outcome was read, reported and judged
  int64_t acted() const { return acted_; }      // its command bits have acted
  int64_t next() const { return last_ + 1; }

  // The outcome of a step is read, and its command bits act, before this many steps later.
  static constexpr int64_t kLag = 2;
  // True while the bits of a step must act before `step` is enqueued.
  bool MustActBefore(int64_t step) const { return acted_ < step - kLag; }
  // True while there are steps whose bits have not acted.
  bool HasUnacted() const { return acted_ < last_; }

  // Each returns the step that it moves to.
  int64_t Enqueue();
  int64_t Count();
  int64_t Read();
  int64_t Act();

 private:
  int64_t start_, last_, counted_, read_, acted_;
};

// One value for each of the newest steps, as many as the engine's StepRing holds.
template <class T>
class RecentSteps {
 public:
  T& operator[](int64_t step) { return values_[Index(step)]; }
  const T& operator[](int64_t step) const { return values_[Index(step)]; }

 private:
  static constexpr int64_t kSteps = engine::StepRing::kSteps;
  static_assert(kSteps > StepCursor::kLag);
  static size_t Index(int64_t step) { return static_cast<size_t>(step % kSteps); }

  std::array<T, kSteps> values_{};
};

}  // namespace mt::train
