// The settings of a job that an update may change while it runs: a small struct of fixed size, so
// that rank 0 can hand it to all ranks in one broadcast. Everything else needs a new placement.
#pragma once

#include <array>
#include <cstdint>

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::train {

struct RunSettings {
  int64_t log_every = 1;
  int64_t checkpoint_every_iters = 0;  // 0: off
  int64_t checkpoint_every_ms = 0;     // 0: off
  int64_t keep_last = 2;
  int64_t keep_every = 0;        // 0: off
  int64_t keep_best = 0;         // 0: off
  int64_t eval_every_iters = 0;  // 0: off
  int64_t eval_iters = 0;        // 0: the whole validation split
  int64_t eval_fixed = 0;        // 1: each evaluation reads the same samples

  friend bool operator==(const RunSettings&, const RunSettings&) = default;
};

// The settings in a job, which must be completed (spec::CompleteJob); and their way back into it.
RunSettings SettingsOf(const megatrain::v1::JobSpec& job);
void ApplySettings(const RunSettings& settings, megatrain::v1::JobSpec* job);

// The form in which they are broadcast, one integer each.
inline constexpr int kNumRunSettings = 9;
using PackedSettings = std::array<int64_t, kNumRunSettings>;
PackedSettings Pack(const RunSettings& settings);
RunSettings Unpack(const PackedSettings& packed);

}  // namespace mt::train
