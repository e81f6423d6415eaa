// Where the time of a step goes, by marks on the compute stream. At any moment of the device one
// phase is open; a mark closes it and opens the next. The host labels each mark as it enqueues it,
// and once the device has reached it, the time between two marks belongs to the first one's label.
// So the times are the device's, inside CUDA graphs too, and not those of a host that runs ahead.
// Where a stream runs each call at once they are the host's. Source:
// docs/design/gpu-engine.md#marks.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/report/step_phase.h"
#include "kernels/core/device.h"

namespace mt::engine {

using report::Name;
using report::StepPhase;
inline constexpr size_t kNumStepPhases = report::kStepPhaseNames.size();

// Indexed by StepPhase.
using PhaseSeconds = std::array<double, kNumStepPhases>;

inline void Add(const PhaseSeconds& more, PhaseSeconds* sum) {
  for (size_t i = 0; i < sum->size(); ++i) (*sum)[i] += more[i];
}

// The times of one step. It begins where the step before ended or, if something lay between them
// (an evaluation, a save, a pause), at the end of that.
struct StepTime {
  double seconds = 0;
  PhaseSeconds phases{};   // their sum is `seconds`
  PhaseSeconds between{};  // what lay between, pauses apart
};

// What lay between two marks: nanoseconds of the clock of the stream's marks.
struct PhaseInterval {
  StepPhase phase = StepPhase::kOther;
  // That it counts in (StepTime::phases); of an interval that counts as `between` the step before.
  int64_t step = 0;
  bool between = false;
  int microbatch = 0;
  int chunk = 0;
  int64_t begin = 0, end = 0;
  // When the host had enqueued the mark at its end, and so all that lies in it: nanoseconds of the
  // host's clock; 0: before intervals were kept.
  int64_t enqueued = 0;
};

// One thread, except that the methods that say so may be called from any.
class PhaseClock {
 public:
  // Times the work of `stream`, with `clock`, the host's, where the device has none of its own. All
  // three must outlive the object. kOther is open at first.
  PhaseClock(kernels::Device* device, kernels::Stream* stream, const base::Clock* clock);
  PhaseClock(const PhaseClock&) = delete;
  PhaseClock& operator=(const PhaseClock&) = delete;

  // The step, and the action within it, that the marks to come belong to.
  void SetStep(int64_t step) { place_ = {.step = step}; }
  void SetAction(int microbatch, int chunk);

  // Closes the open phase and opens this one; returns the phase that was open. Blocks of calls use
  // a PhaseScope (phase_scope.h), which goes back to that phase.
  StepPhase Switch(StepPhase phase);
  // The phase that is open in the host's order of calls.
  StepPhase open() const { return open_; }
  // Marks the end of the step.
  void EndStep(int64_t step);
  // Ends work that belongs to no step, such as an evaluation: its time since the last boundary
  // counts as `between`. At the end of a pause all of it but kOther does.
  void EndBetween() { Mark(StepPhase::kOther, Boundary::kBetween); }
  void EndPause() { Mark(StepPhase::kOther, Boundary::kPause); }

  // The times of one of the last kSteps steps; nullopt until the device has reached its end.
  std::optional<StepTime> Of(int64_t step);
  static constexpr int64_t kSteps = 4;

  // Keeps the intervals of these steps, which have not begun, and of what lies between them, for
  // TakeIntervals. Those without length are left out.
  void KeepIntervals(int64_t first, int64_t last);
  // Those that the device has ended, in order; none are kept any more.
  std::vector<PhaseInterval> TakeIntervals();
  // Marks this moment, waits until the device has reached it and returns when that was. What the
  // stream held before counts as EndBetween's.
  int64_t MarkNow();

  // The newest mark that the device has reached, by its label, and how many it has yet to reach:
  // "step 12, microbatch 3, chunk 0: backward; 14 marks enqueued behind it". For the diagnosis of a
  // hang; any thread, at any time.
  std::string LastMark() const;
  // The phase that the device is in; kOther before the first mark. Any thread, at any time.
  StepPhase LastPhase() const;

  // The microbatch of the newest mark that the device has reached, from 0. Any thread, at any time.
  int LastMicrobatch() const;

  // Between these two, marks are recorded with the calls around them (Device::Record) and their
  // labels kept, for Replay at each launch.
  void BeginRecording();
  std::vector<StepPhase> EndRecording();
  void Replay(const std::vector<StepPhase>& labels, const std::function<void()>& launch);

 private:
  // What a mark ends beside a phase.
  enum class Boundary : uint8_t { kNone, kStep, kBetween, kPause };
  // Packed into one integer, so that another thread reads it in one atomic load.
  struct Label {
    StepPhase opens = StepPhase::kOther;
    Boundary ends = Boundary::kNone;
    int64_t step = 0;
    int microbatch = 0;
    int chunk = 0;
    uint64_t Pack() const;
    static Label Unpack(uint64_t packed);
    std::string Text() const;
  };
  using PhaseNanos = std::array<int64_t, kNumStepPhases>;

  void Mark(StepPhase opens, Boundary ends);
  // Stores the label of the mark that is enqueued next.
  void Push(StepPhase opens, Boundary ends);
  // The newest `count` marks are enqueued: notes when, while intervals are kept.
  void NoteEnqueued(int64_t count);
  // Makes room in the ring for `count` more marks: waits where the device is a whole ring behind.
  void Reserve(int64_t count);
  // Accounts for all marks that the device has reached.
  void Follow();
  void Account(const Label& label, int64_t nanos);
  // Adds the interval before this mark to those that wait for the boundary which tells what they
  // count in; at a boundary keeps them.
  void Keep(const Label& label, int64_t nanos);
  std::atomic<uint64_t>& LabelOf(int64_t mark) const {
    return labels_[static_cast<size_t>(mark % ring_->capacity())];
  }

  kernels::Stream* const stream_;
  const base::Clock* const clock_;
  const std::unique_ptr<kernels::MarkRing> ring_;
  const std::unique_ptr<std::atomic<uint64_t>[]> labels_;  // by mark modulo the capacity
  std::atomic<int64_t> enqueued_ = 0;                      // marks
  Label place_;                                            // of the marks to come
  StepPhase open_ = StepPhase::kOther;                     // by the host's order
  bool recording_ = false;
  std::vector<StepPhase> recorded_;

  // How far the device is known to have come.
  int64_t followed_ = 0;  // marks
  int64_t last_nanos_ = 0;
  Label running_;  // of the last mark
  bool keeps_ = false;
  int64_t keep_first_ = 0, keep_last_ = -1;
  std::vector<int64_t> enqueued_at_;    // by mark modulo the capacity, of marks while keeps_
  std::vector<PhaseInterval> waiting_;  // since the last boundary
  std::vector<PhaseInterval> kept_;
  PhaseNanos nanos_{}, between_nanos_{};                    // since the last boundary; before it
  std::array<int64_t, kSteps> step_of_ = {-1, -1, -1, -1};  // of times_
  std::array<StepTime, kSteps> times_;
};

}  // namespace mt::engine
