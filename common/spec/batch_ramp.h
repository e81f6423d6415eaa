// The global batch size of each step where it grows during a run, in both of Megatron-LM's forms
// (num_microbatches_calculator.py): "start,increment,samples" grows by equal increments over the
// first samples; "0:256 100M:512" lists sizes with the number of tokens from which they apply. A
// step's size depends only on the samples consumed before it, so resuming needs no state. Pure;
// thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace mt::spec {

// From `from_samples` consumed samples on, a step takes `batch` samples.
struct BatchPhase {
  int64_t from_samples = 0;
  int64_t batch = 0;
  bool operator==(const BatchPhase&) const = default;
};

class BatchRamp {
 public:
  // A ramp with a single size.
  static BatchRamp Constant(int64_t batch);

  struct ParseArgs {
    std::string_view text;     // training.batch_ramp
    int64_t global_batch = 0;  // the size after the ramp; 0: not given
    int64_t seq_length = 0;    // tokens of a sample
  };
  // kInvalidArgument says what is wrong with the text: a form that is neither of the two, sizes
  // below 1, an increment that does not lead to the last size, thresholds that do not rise from 0,
  // a given global batch that differs from the last size, more than kMaxPhases sizes.
  static StatusOr<BatchRamp> Parse(const ParseArgs& args);
  static constexpr int64_t kMaxPhases = 4096;

  // In ascending order; the first begins at 0. Never empty.
  const std::vector<BatchPhase>& phases() const { return phases_; }
  int64_t last_batch() const { return phases_.back().batch; }
  // Size of the step that begins after `consumed_samples` samples.
  int64_t BatchOf(int64_t consumed_samples) const;
  // Size of the step after which so many samples are consumed; last_batch() where no step ends
  // there.
  int64_t BatchBefore(int64_t consumed_samples) const;
  // Number of steps in a run of at most `samples` samples; only whole batches count.
  int64_t StepsFor(int64_t samples) const;
  // Samples consumed by the first `steps` steps; the largest int64 where the result does not fit.
  int64_t SamplesAfter(int64_t steps) const;

 private:
  explicit BatchRamp(std::vector<BatchPhase> phases) : phases_(std::move(phases)) {}
  static StatusOr<BatchRamp> ParseIncrements(const ParseArgs& args,
                                             const std::vector<std::string_view>& words);
  static StatusOr<BatchRamp> ParseThresholds(const ParseArgs& args,
                                             const std::vector<std::string_view>& words);

  std::vector<BatchPhase> phases_;
};

}  // namespace mt::spec
