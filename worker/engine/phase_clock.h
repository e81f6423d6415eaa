// Where the time of a step goes, by marks on the compute stream: at any moment of the device one
// phase is open, and a mark closes it and opens the next. The host puts a label on each mark as it
// enqueues it; when the device has reached it, the time between two marks is its label's. So the
// times are the device's, not those of a host that runs ahead, inside recordings too; where a
// stream runs each call at once they are the host's. Source: docs/design/gpu-engine.md#marks.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
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

// One thread, but for LastMark and LastPhase.
class PhaseClock {
 public:
  // What is made or awaited on `stream` is timed; `clock` where the device has none. All three must
  // outlive the object. At first kOther is open.
  PhaseClock(kernels::Device* device, kernels::Stream* stream, const base::Clock* clock);
  PhaseClock(const PhaseClock&) = delete;
  PhaseClock& operator=(const PhaseClock&) = delete;

  // What the marks that follow belong to.
  void SetStep(int64_t step) { place_ = {.step = step}; }
  void SetAction(int microbatch, int chunk);

  // Closes the open phase and opens this one; returns the phase that was open, to go back to.
  StepPhase Switch(StepPhase phase);
  // Marks the end of the step.
  void EndStep(int64_t step);
  // What lay here since the step's end was no part of a step: it is counted as `between`; of a
  // pause all but kOther.
  void EndBetween() { Mark(StepPhase::kOther, Border::kBetween); }
  void EndPause() { Mark(StepPhase::kOther, Border::kPause); }

  // Of one of the last kSteps steps; nullopt until the device has reached its end.
  std::optional<StepTime> Of(int64_t step);
  static constexpr int64_t kSteps = 4;

  // The newest mark that the device has reached, by its label, and how many it has yet to reach:
  // "step 12, microbatch 3, chunk 0: backward; 14 marks enqueued behind it". For the diagnosis of a
  // hang; any thread, at any time.
  std::string LastMark() const;
  // The phase that it is in; kOther before the first mark. As LastMark.
  StepPhase LastPhase() const;

  // Between these two, marks are recorded with the calls around them (Device::Record) and their
  // labels kept. Replay comes before each launch.
  void BeginRecording();
  std::vector<StepPhase> EndRecording();
  void Replay(const std::vector<StepPhase>& labels);

 private:
  // What a mark ends, beside a phase.
  enum class Border : uint8_t { kNone, kStep, kBetween, kPause };
  // Packed into one word, which a reader of another thread sees whole.
  struct Label {
    StepPhase opens = StepPhase::kOther;
    Border ends = Border::kNone;
    int64_t step = 0;
    int microbatch = 0;
    int chunk = 0;
    uint64_t Pack() const;
    static Label Unpack(uint64_t word);
    std::string Text() const;
  };
  using PhaseNanos = std::array<int64_t, kNumStepPhases>;

  void Mark(StepPhase opens, Border ends);
  // Labels the mark that is enqueued next.
  void Push(StepPhase opens, Border ends);
  // Makes room in the ring for `count` more marks: waits where the device is a whole ring behind.
  void Reserve(int64_t count);
  // Accounts for all marks that the device has reached.
  void Follow();
  void Account(const Label& label, int64_t nanos);
  std::atomic<uint64_t>& LabelOf(int64_t mark) const {
    return labels_[static_cast<size_t>(mark % ring_->capacity())];
  }

  kernels::Stream* const stream_;
  const std::unique_ptr<kernels::MarkRing> ring_;
  const std::unique_ptr<std::atomic<uint64_t>[]> labels_;  // by mark modulo the capacity
  std::atomic<int64_t> enqueued_ = 0;                      // marks
  Label place_;                                            // of the marks to come
  StepPhase open_ = StepPhase::kOther;                     // by the host's order
  bool recording_ = false;
  std::vector<StepPhase> recorded_;

  // As far as the device is known to have come.
  int64_t followed_ = 0;  // marks
  int64_t last_nanos_ = 0;
  StepPhase running_ = StepPhase::kOther;
  PhaseNanos nanos_{}, between_nanos_{};                    // since the last border, and before it
  std::array<int64_t, kSteps> step_of_ = {-1, -1, -1, -1};  // of times_
  std::array<StepTime, kSteps> times_;
};

}  // namespace mt::engine
