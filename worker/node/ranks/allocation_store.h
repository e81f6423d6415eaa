// Stores what the next agent must know about the running ranks: one record per job and epoch.
// Implemented by allocation_dir.h, on disk, and by a fake in tests. Loop thread only; blocks on the
// local disk.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace megatrain::v1 {
class AllocationRecord;
}

namespace mt::node {

class AllocationStore {
 public:
  virtual ~AllocationStore() = default;
  // Replaces the record of its job and epoch, durably. Errors: those of writing a file.
  virtual Status Save(const megatrain::v1::AllocationRecord& record) = 0;
  // Removes the record and everything that its ranks have left. A failure is logged.
  virtual void Remove(const std::string& job_uid, int64_t epoch) = 0;
};

}  // namespace mt::node
