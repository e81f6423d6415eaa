// A stage's actions as recordings, which are CUDA graphs: the calls of the eager path, captured
// once per (chunk, slot, microbatch's place, direction, overwrite|add) and launched from then on,
// so that the host enqueues one call in place of hundreds. Recording is an option: nothing works
// in a recording only, and an action that cannot be captured stays eager. Source:
// docs/design/gpu-engine.md#recordings.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/core/device.h"
#include "kernels/core/tensor.h"
#include "worker/engine/phase_clock.h"

namespace mt::engine {

// The addresses and constants of an action are a function of these.
struct ActionKey {
  int chunk = 0;
  int slot = 0;
  int place = 0;  // of its microbatch
  bool backward = false;
  kernels::GradMode mode = kernels::GradMode::kOverwrite;
  friend auto operator<=>(const ActionKey&, const ActionKey&) = default;
};

// One thread. Everything that Args points to must outlive the object; it may be destroyed once the
// device has finished the last launch.
class ActionRecordings {
 public:
  struct Args {
    kernels::Device* device = nullptr;
    kernels::Stream* stream = nullptr;
    PhaseClock* phases = nullptr;
    bool enabled = false;
  };
  explicit ActionRecordings(const Args& args) : args_(args), on_(args.enabled) {}

  // Call before each step. The first step is eager.
  void BeginStep() { ++steps_; }
  // True if Run records or launches in this step.
  bool on() const { return on_ && steps_ > 1; }
  // Ends recording for good; the reason is logged.
  void Disable(const std::string& why);

  // Enqueues the work of `calls`: eagerly when a key comes for the first time, because choices and
  // plans made at first use cannot be captured; as a recording in later steps.
  void Run(const ActionKey& key, const std::function<void()>& calls);

  int64_t num_recordings() const { return num_recordings_; }

 private:
  struct Entry {
    int64_t first_step = 0;  // in which it ran eagerly
    std::unique_ptr<kernels::Recording> recording;
    std::vector<StepPhase> marks;
  };

  // Returns false where the calls could not be captured.
  bool Record(const std::function<void()>& calls, Entry* entry);

  const Args args_;
  bool on_;
  int64_t steps_ = 0;
  int64_t num_recordings_ = 0;
  std::map<ActionKey, Entry> entries_;
};

}  // namespace mt::engine
