#include "worker/engine/phase_clock.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "common/base/check.h"

namespace mt::engine {
namespace {

// Three steps of 1,024 microbatches and their collectives.
constexpr int64_t kCapacity = int64_t{1} << 15;

// Bits of a packed label, from the lowest.
constexpr int kPhaseBits = 4, kBorderBits = 4, kChunkBits = 8, kMicrobatchBits = 16;

// `value`, or the largest that fits.
uint64_t Field(int64_t value, int bits) {
  return std::min(static_cast<uint64_t>(value), (uint64_t{1} << bits) - 1);
}

uint64_t Take(uint64_t* word, int bits) {
  const uint64_t field = *word & ((uint64_t{1} << bits) - 1);
  *word >>= bits;
  return field;
}

}  // namespace

uint64_t PhaseClock::Label::Pack() const {
  uint64_t word = static_cast<uint64_t>(step);  // the rest of the bits
  word = word << kMicrobatchBits | Field(microbatch, kMicrobatchBits);
  word = word << kChunkBits | Field(chunk, kChunkBits);
  word = word << kBorderBits | static_cast<uint64_t>(ends);
  return word << kPhaseBits | static_cast<uint64_t>(opens);
}

PhaseClock::Label PhaseClock::Label::Unpack(uint64_t word) {
  Label label;
  label.opens = static_cast<StepPhase>(Take(&word, kPhaseBits));
  label.ends = static_cast<Border>(Take(&word, kBorderBits));
  label.chunk = static_cast<int>(Take(&word, kChunkBits));
  label.microbatch = static_cast<int>(Take(&word, kMicrobatchBits));
  label.step = static_cast<int64_t>(word);
  return label;
}

std::string PhaseClock::Label::Text() const {
  switch (ends) {
    case Border::kStep:
      return fmt::format("end of step {}", step);
    case Border::kBetween:
      return fmt::format("end of work between steps, after step {}", step);
    case Border::kPause:
      return fmt::format("end of a pause after step {}", step);
    case Border::kNone:
      return fmt::format("step {}, microbatch {}, chunk {}: {}", step, microbatch, chunk,
                         Name(opens));
  }
  return "";
}

PhaseClock::PhaseClock(kernels::Device* device, kernels::Stream* stream, const base::Clock* clock)
    : stream_(stream),
      ring_(device->CreateMarkRing(kCapacity, clock)),
      labels_(new std::atomic<uint64_t>[static_cast<size_t>(ring_->capacity())]()) {
  Mark(StepPhase::kOther, Border::kNone);
}

void PhaseClock::SetAction(int microbatch, int chunk) {
  place_.microbatch = microbatch;
  place_.chunk = chunk;
}

StepPhase PhaseClock::Switch(StepPhase phase) {
  const StepPhase was = open_;
  Mark(phase, Border::kNone);
  return was;
}

void PhaseClock::EndStep(int64_t step) {
  place_ = {.step = step};
  Mark(StepPhase::kOther, Border::kStep);
}

void PhaseClock::Mark(StepPhase opens, Border ends) {
  if (recording_) {
    CHECK(ends == Border::kNone) << "a recording lies within a step";
    ring_->Mark(*stream_);
    recorded_.push_back(opens);
    open_ = opens;
    return;
  }
  Reserve(1);
  Push(opens, ends);
  ring_->Mark(*stream_);
}

// The label is there before the device can reach its mark.
void PhaseClock::Push(StepPhase opens, Border ends) {
  Label label = place_;
  label.opens = opens;
  label.ends = ends;
  const int64_t mark = enqueued_.load(std::memory_order_relaxed) + 1;
  LabelOf(mark).store(label.Pack(), std::memory_order_relaxed);
  enqueued_.store(mark, std::memory_order_release);
  open_ = opens;
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
  if (followed_ > 1) nanos_[static_cast<size_t>(running_)] += nanos - last_nanos_;
  last_nanos_ = nanos;
  running_ = label.opens;
  if (label.ends == Border::kNone) return;
  const auto seconds = [](int64_t n) { return static_cast<double>(n) / 1e9; };
  if (label.ends == Border::kStep) {
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
    if (label.ends == Border::kPause) nanos_[static_cast<size_t>(StepPhase::kOther)] = 0;
    for (size_t i = 0; i < nanos_.size(); ++i) between_nanos_[i] += nanos_[i];
  }
  nanos_ = {};
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

void PhaseClock::BeginRecording() {
  CHECK(!recording_);
  recording_ = true;
}

std::vector<StepPhase> PhaseClock::EndRecording() {
  recording_ = false;
  return std::exchange(recorded_, {});
}

void PhaseClock::Replay(const std::vector<StepPhase>& labels) {
  Reserve(static_cast<int64_t>(labels.size()));
  for (const StepPhase opens : labels) Push(opens, Border::kNone);
}

}  // namespace mt::engine
