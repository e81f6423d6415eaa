// What a rank's time goes to, and the words for it: keys of its metrics, labels of the agent's
// series, the phase in which a beat says that the rank is. Header only; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace mt::report {

enum class StepPhase : uint8_t {
  kData,      // waiting for the loader, and its copies
  kForward,   // embedding to loss
  kBackward,  // both without the communication in them
  kTpComm,    // collectives of the ranks that share each matrix
  kPpWait,    // waiting for a neighbour in the pipeline: the bubble
  kDpComm,    // sums over replicas
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
