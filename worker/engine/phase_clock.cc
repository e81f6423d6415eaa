// Labels lie in a ring beside the device's marks: the host stores a label before it enqueues the
// mark, and Follow adds up the times of the marks that the device has reached since.
#include "worker/engine/phase_clock.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "common/base/check.h"

namespace mt::engine {
namespace {

// Three steps of 1,024 microbatches and their collectives.
constexpr int64_t kCapacity = int64_t{1} << 15;

// Bits of a packed label, from the lowest.
constexpr int kPhaseBits = 4, kBoundaryBits = 4, kChunkBits = 8, kMicrobatchBits = 16;

// `value`, or the largest that fits.
uint64_t Field(int64_t value, int bits) {
  return std::min(static_cast<uint64_t>(value), (uint64_t{1} << bits) - 1);
}

uint64_t Take(uint64_t* packed, int bits) {
  const uint64_t field = *packed & ((uint64_t{1} << bits) - 1);
  *packed >>= bits;
  return field;
}

}  // namespace

uint64_t PhaseClock::Label::Pack() const {
  uint64_t packed = static_cast<uint64_t>(step);  // the rest of the bits
  packed = packed << kMicrobatchBits | Field(microbatch, kMicrobatchBits);
  packed = packed << kChunkBits | Field(chunk, kChunkBits);
  packed = packed << kBoundaryBits | static_cast<uint64_t>(ends);
  return packed << kPhaseBits | static_cast<uint64_t>(opens);
}

PhaseClock::Label PhaseClock::Label::Unpack(uint64_t packed) {
  Label label;
  label.opens = static_cast<StepPhase>(Take(&packed, kPhaseBits));
  label.ends = static_cast<Boundary>(Take(&packed, kBoundaryBits));
  label.chunk = static_cast<int>(Take(&packed, kChunkBits));
  label.microbatch = static_cast<int>(Take(&packed, kMicrobatchBits));
  label.step = static_cast<int64_t>(packed);
  return label;
}

std::string PhaseClock::Label::Text() const {
  switch (ends) {
    case Boundary::kStep:
      return fmt::format("end of step {}", step);
    case Boundary::kBetween:
      return fmt::format("end of work between steps, after step {}", step);
    case Boundary::kPause:
      return fmt::format("end of a pause after step {}", step);
    case Boundary::kNone:
      return fmt::format("step {}, microbatch {}, chunk {}: {}", step, microbatch, chunk,
                         Name(opens));
  }
  return "";
}

PhaseClock::PhaseClock(kernels::Device* device, kernels::Stream* stream, const base::Clock* clock)
    : stream_(stream),
      clock_(clock),
      ring_(device->CreateMarkRing(kCapacity, clock)),
      labels_(new std::atomic<uint64_t>[static_cast<size_t>(ring_->capacity())]()) {
  Mark(StepPhase::kOther, Boundary::kNone);
}

void PhaseClock::SetAction(int microbatch, int chunk) {
  place_.microbatch = microbatch;
  place_.chunk = chunk;
}

StepPhase PhaseClock::Switch(StepPhase phase) {
  const StepPhase was = open_;
  Mark(phase, Boundary::kNone);
  return was;
}

void PhaseClock::EndStep(int64_t step) {
  place_ = {.step = step};
  Mark(StepPhase::kOther, Boundary::kStep);
}

void PhaseClock::Mark(StepPhase opens, Boundary ends) {
  if (recording_) {
    CHECK(ends == Boundary::kNone) << "a recording lies within a step";
    ring_->Mark(*stream_);
    recorded_.push_back(opens);
    open_ = opens;
    return;
  }
  Reserve(1);
  Push(opens, ends);
  ring_->Mark(*stream_);
  NoteEnqueued(1);
}

// The label is there before the device can reach its mark.
void PhaseClock::Push(StepPhase opens, Boundary ends) {
  Label label = place_;
  label.opens = opens;
  label.ends = ends;
  const int64_t mark = enqueued_.load(std::memory_order_relaxed) + 1;
  LabelOf(mark).store(label.Pack(), std::memory_order_relaxed);
  enqueued_.store(mark, std::memory_order_release);
  open_ = opens;
}

void PhaseClock::NoteEnqueued(int64_t count) {
  if (!keeps_) return;
  const std::chrono::nanoseconds now = clock_->Now().time_since_epoch();
  const int64_t last = enqueued_.load(std::memory_order_relaxed);
  for (int64_t mark = last - count + 1; mark <= last; ++mark)
    enqueued_at_[static_cast<size_t>(mark % ring_->capacity())] = now.count();
}

void PhaseClock::Reserve(int64_t count) {
  const int64_t limit = ring_->capacity() - count;
  CHECK_GT(limit, 0);
  const auto behind = [this] { return enqueued_.load(std::memory_order_relaxed) - followed_; };
  if (behind() < limit / 2) return;
  Follow();
  if (behind() < limit) return;
  stream_->Synchronize();
  Follow();
}

void PhaseClock::Follow() {
  const int64_t enqueued = enqueued_.load(std::memory_order_relaxed);
  while (followed_ < enqueued) {
    const std::optional<int64_t> nanos = ring_->TimeOf(followed_ + 1);
    if (!nanos) return;
    ++followed_;
    Account(Label::Unpack(LabelOf(followed_).load(std::memory_order_relaxed)), *nanos);
  }
}

void PhaseClock::Account(const Label& label, int64_t nanos) {
  if (followed_ > 1) nanos_[static_cast<size_t>(running_.opens)] += nanos - last_nanos_;
  if (keeps_) Keep(label, nanos);
  last_nanos_ = nanos;
  running_ = label;
  if (label.ends == Boundary::kNone) return;
  const auto seconds = [](int64_t n) { return static_cast<double>(n) / 1e9; };
  if (label.ends == Boundary::kStep) {
    const auto at = static_cast<size_t>(label.step % kSteps);
    StepTime& time = times_[at];
    step_of_[at] = label.step;
    time.seconds = seconds(std::accumulate(nanos_.begin(), nanos_.end(), int64_t{0}));
    for (size_t i = 0; i < nanos_.size(); ++i) {
      time.phases[i] = seconds(nanos_[i]);
      time.between[i] = seconds(between_nanos_[i]);
    }
    between_nanos_ = {};
  } else {
    if (label.ends == Boundary::kPause) nanos_[static_cast<size_t>(StepPhase::kOther)] = 0;
    for (size_t i = 0; i < nanos_.size(); ++i) between_nanos_[i] += nanos_[i];
  }
  nanos_ = {};
}

void PhaseClock::Keep(const Label& label, int64_t nanos) {
  if (followed_ > 1 && nanos > last_nanos_) {
    waiting_.push_back(
        {.phase = running_.opens,
         .microbatch = running_.microbatch,
         .chunk = running_.chunk,
         .begin = last_nanos_,
         .end = nanos,
         .enqueued = enqueued_at_[static_cast<size_t>(followed_ % ring_->capacity())]});
  }
  if (label.ends == Boundary::kNone) return;
  const bool in_step = label.ends == Boundary::kStep;
  const bool wanted = in_step ? label.step >= keep_first_ && label.step <= keep_last_
                              : label.step >= keep_first_ && label.step < keep_last_;
  for (PhaseInterval& interval : waiting_) {
    if (!wanted) break;
    // A pause is nobody's time.
    if (label.ends == Boundary::kPause && interval.phase == StepPhase::kOther) continue;
    interval.step = label.step;
    interval.between = !in_step;
    kept_.push_back(interval);
  }
  waiting_.clear();
}

void PhaseClock::KeepIntervals(int64_t first, int64_t last) {
  Follow();
  keep_first_ = first;
  keep_last_ = last;
  keeps_ = true;
  enqueued_at_.assign(static_cast<size_t>(ring_->capacity()), 0);
  waiting_.clear();
  kept_.clear();
}

std::vector<PhaseInterval> PhaseClock::TakeIntervals() {
  Follow();
  keeps_ = false;
  waiting_.clear();
  return std::exchange(kept_, {});
}

int64_t PhaseClock::MarkNow() {
  EndBetween();
  stream_->Synchronize();
  Follow();
  return last_nanos_;
}

std::optional<StepTime> PhaseClock::Of(int64_t step) {
  Follow();
  const auto at = static_cast<size_t>(step % kSteps);
  if (step_of_[at] != step) return std::nullopt;
  return times_[at];
}

std::string PhaseClock::LastMark() const {
  // In this order: the device is never found ahead of the host.
  const int64_t reached = ring_->Newest();
  const int64_t enqueued = enqueued_.load(std::memory_order_acquire);
  if (reached == 0) return fmt::format("none of {} marks", enqueued);
  const Label label = Label::Unpack(LabelOf(reached).load(std::memory_order_relaxed));
  return fmt::format("{}; {} marks enqueued behind it", label.Text(), enqueued - reached);
}

StepPhase PhaseClock::LastPhase() const {
  const int64_t reached = ring_->Newest();
  if (reached == 0) return StepPhase::kOther;
  return Label::Unpack(LabelOf(reached).load(std::memory_order_relaxed)).opens;
}

int PhaseClock::LastMicrobatch() const {
  const int64_t reached = ring_->Newest();
  if (reached == 0) return 0;
  return Label::Unpack(LabelOf(reached).load(std::memory_order_relaxed)).microbatch;
}

void PhaseClock::BeginRecording() {
  CHECK(!recording_);
  recording_ = true;
}

std::vector<StepPhase> PhaseClock::EndRecording() {
  recording_ = false;
  return std::exchange(recorded_, {});
}

void PhaseClock::Replay(const std::vector<StepPhase>& labels, const std::function<void()>& launch) {
  const auto count = static_cast<int64_t>(labels.size());
  Reserve(count);
  for (const StepPhase opens : labels) Push(opens, Boundary::kNone);
  launch();
  NoteEnqueued(count);
}

}  // namespace mt::engine
