// Group factory for ranks that are threads of one process. Used by tests of parallel layouts (any
// mesh in one process, under ThreadSanitizer) and by runs without processes.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "common/base/mutex.h"
#include "worker/comm/group_factory.h"

namespace mt::comm {

class ThreadsRoom;

// Shared by all ranks. Need not outlive its groups, which keep what they use alive. Thread-safe.
class ThreadsHub final : public GroupFactory {
 public:
  explicit ThreadsHub(CommConfig config) : config_(std::move(config)) {}

  // Each member calls this from its own thread. kFailedPrecondition if members name different
  // member lists. Unlike with other factories, a name may be used again once its group is complete.
  StatusOr<std::unique_ptr<ProcessGroup>> Create(GroupSpec spec) override;

 private:
  StatusOr<std::shared_ptr<ThreadsRoom>> Enter(const GroupSpec& spec);

  const CommConfig config_;
  base::Mutex mu_;
  // Rooms that still wait for members, by group name.
  std::map<std::string, std::shared_ptr<ThreadsRoom>> open_rooms_ GUARDED_BY(mu_);
};

}  // namespace mt::comm
