// A stage's actions as recordings (CUDA graphs): the same calls as the eager path makes, captured
// once per (chunk, slot, microbatch's place, direction, overwrite|add) and launched from then on,
// so that the host enqueues one call in place of hundreds. A switch: nothing works only in a
// recording, and an action that cannot be recorded goes on eagerly. Source:
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

// What addresses and constants of an action depend on.
struct ActionKey {
  int chunk = 0;
  int slot = 0;
  int place = 0;  // where its microbatch lies
  bool backward = false;
  kernels::GradMode mode = kernels::GradMode::kOverwrite;
  friend auto operator<=>(const ActionKey&, const ActionKey&) = default;
};

// One thread. What Args points to must outlive it; the device must have passed the last launch when
// it is destroyed.
class ActionRecordings {
 public:
  struct Args {
    kernels::Device* device = nullptr;
    kernels::Stream* stream = nullptr;
    PhaseClock* phases = nullptr;
    bool enabled = false;
  };
  explicit ActionRecordings(const Args& args) : args_(args), on_(args.enabled) {}

  // Before each step. The first is eager altogether.
  void BeginStep() { ++steps_; }
  // Whether the actions of this step go through Run.
  bool on() const { return on_ && steps_ > 1; }
  // No recording from here on, for this reason, which the log tells.
  void Disable(const std::string& why);

  // Enqueues what `calls` enqueues: by itself the first time that a key comes, since whatever is
  // chosen or planned at first use cannot be recorded; in a later step as a recording.
  void Run(const ActionKey& key, const std::function<void()>& calls);

  int64_t num_recordings() const { return num_recordings_; }

 private:
  struct Entry {
    int64_t first_step = 0;  // ran eagerly in it
    std::unique_ptr<kernels::Recording> recording;
    std::vector<StepPhase> marks;
  };

  // Whether it was recorded.
  bool Record(const std::function<void()>& calls, Entry* entry);

  const Args args_;
  bool on_;
  int64_t steps_ = 0;
  int64_t num_recordings_ = 0;
  std::map<ActionKey, Entry> entries_;
};

}  // namespace mt::engine
