// Memory that makes a run faster and that it can do without: it is planned where every rank has
// room for it, alone or together with the other ranks of its machine, before any of them takes
// memory.
#pragma once

#include <cstdint>
#include <optional>

#include "common/base/status.h"
#include "worker/checkpoint/exchange.h"
#include "worker/engine/engine_plan.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::train {

// Collective: memory for the gathered inputs of branches, on all ranks or on none; then backward
// gathers them again. `later_bytes` are what this rank takes of its device once the engine has its
// memory, and cannot do without. Errors: the groups', and what a rank cannot find out about its
// memory.
Status PlanInputs(int64_t later_bytes, checkpoint::Exchange* exchange,
                  std::optional<engine::EnginePlan>* plan);

// Collective: memory for the copy of saves beside training, on all ranks or, where one has no room,
// on none; then saves hold up training. After PlanInputs; errors likewise.
Status PlanSnapshot(const megatrain::v1::JobSpec& job, int64_t later_bytes,
                    checkpoint::Exchange* exchange, std::optional<engine::EnginePlan>* plan);

}  // namespace mt::train
