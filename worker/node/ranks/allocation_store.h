// Where the agent keeps what the next agent needs to know of the ranks that run: one record per job
// and epoch. allocation_dir.h keeps it on disk, tests in memory. Loop thread only; blocking.
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
  // In place of the one before.
  virtual Status Save(const megatrain::v1::AllocationRecord& record) = 0;
  // With everything that its ranks have left. A failure is logged.
  virtual void Remove(const std::string& job_uid, int64_t epoch) = 0;
};

}  // namespace mt::node
