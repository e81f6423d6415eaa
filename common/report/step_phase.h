// The phases into which a rank's time is divided, and their names: keys of its metrics, labels of
// the agent's series, and the phase that a beat reports. Header only; thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mt::report {

enum class StepPhase : uint8_t {
  kData,      // waiting for the data loader, and host-to-device copies
  kForward,   // embedding to loss, without the communication in it
  kBackward,  // loss to gradients, without the communication in it
  kTpComm,    // tensor parallel collectives
  kPpWait,    // waiting for a neighbouring pipeline stage: the bubble
  kDpComm,    // data parallel gradient reduction and parameter gather
  kOptimizer,
  kCheckpoint,
  kOther,  // between the others: commands, records
};

// Indexed by StepPhase.
inline constexpr std::array<std::string_view, 9> kStepPhaseNames = {
    "data", "forward", "backward", "tp_comm", "pp_wait", "dp_comm", "optimizer", "ckpt", "other"};
static_assert(kStepPhaseNames.size() == static_cast<size_t>(StepPhase::kOther) + 1);

constexpr std::string_view Name(StepPhase phase) {
  return kStepPhaseNames[static_cast<size_t>(phase)];
}

}  // namespace mt::report
