// What of a job may change while it runs: a small struct of fixed size, so that rank 0 can hand it
// to all ranks in one broadcast. Nothing else of the job changes without a new placement.
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
  int64_t eval_every_iters = 0;  // 0: off
  int64_t eval_iters = 0;        // 0: the whole validation split

  friend bool operator==(const RunSettings&, const RunSettings&) = default;
};

// As the job, which must be completed, has them.
RunSettings SettingsOf(const megatrain::v1::JobSpec& job);
void ApplySettings(const RunSettings& settings, megatrain::v1::JobSpec* job);

// For the broadcast.
inline constexpr int kNumRunSettings = 6;
using PackedSettings = std::array<int64_t, kNumRunSettings>;
PackedSettings Pack(const RunSettings& settings);
RunSettings Unpack(const PackedSettings& packed);

}  // namespace mt::train
