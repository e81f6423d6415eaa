// Makes the record of a new allocation: the assignment, and what each rank is given.
#pragma once

#include <memory>
#include <string>

#include "worker/node/gpus/slot_table.h"

namespace megatrain::v1 {
class AllocationRecord;
class Assign;
}  // namespace megatrain::v1

namespace mt::node {

// Gives every rank a new secret token, the GPU of its slot and its log file. The job's names must
// be checked (job_names.h).
std::unique_ptr<megatrain::v1::AllocationRecord> NewRecord(const megatrain::v1::Assign& assign,
                                                           const std::string& log_root,
                                                           const SlotTable& slots);

}  // namespace mt::node
