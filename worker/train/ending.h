// Why the step loop ended without an error.
#pragma once

#include <cstdint>

namespace mt::train {

enum class Ending : uint8_t {
  kCompleted,        // the length of the run was reached
  kStopWithSave,     // by command
  kStopWithoutSave,  // by command
  kExitAtIter,       // training.exit_at_iter
  kExitInterval,     // training.exit_interval
  kExitAfter,        // training.exit_after
};

}  // namespace mt::train
