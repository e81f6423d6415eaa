// The record of a new allocation: what the agent, and the next one, must know of its ranks.
#pragma once

#include <memory>
#include <string>

#include "worker/node/gpus/slot_table.h"

namespace megatrain::v1 {
class AllocationRecord;
class Assign;
}  // namespace megatrain::v1

namespace mt::node {

// With a new secret token for every rank, and the GPU of its slot.
std::unique_ptr<megatrain::v1::AllocationRecord> NewRecord(const megatrain::v1::Assign& assign,
                                                           const std::string& log_root,
                                                           const SlotTable& slots);

}  // namespace mt::node
