// The first member of a name opens a room, the last one closes the entry; each waits in the room
// until all have come.
#include "worker/comm/threads/hub.h"

#include <utility>

#include "worker/comm/self_group.h"
#include "worker/comm/threads/threads_group.h"

namespace mt::comm {

StatusOr<std::shared_ptr<ThreadsRoom>> ThreadsHub::Enter(const GroupSpec& spec) {
  const base::MutexLock lock(&mu_);
  auto it = open_rooms_.find(spec.name);
  if (it == open_rooms_.end()) {
    it = open_rooms_.emplace(spec.name, std::make_shared<ThreadsRoom>(spec.members)).first;
  }
  std::shared_ptr<ThreadsRoom> room = it->second;
  ASSIGN_OR_RETURN(const bool complete, room->Join(spec));
  if (complete) open_rooms_.erase(it);
  return room;
}

StatusOr<std::unique_ptr<ProcessGroup>> ThreadsHub::Create(GroupSpec spec) {
  RETURN_IF_ERROR(CheckSpec(spec));
  if (spec.members.size() == 1) return MakeSelfGroup(std::move(spec), config_);
  const base::MonotonicTime deadline = base::Clock::Real()->Now() + config_.connect_timeout;
  ASSIGN_OR_RETURN(std::shared_ptr<ThreadsRoom> room, Enter(spec));
  const Status complete = room->AwaitAll(spec, deadline);
  if (!complete.ok()) {
    // A member that comes later must not wait in a room that another has already given up.
    const base::MutexLock lock(&mu_);
    const auto it = open_rooms_.find(spec.name);
    if (it != open_rooms_.end() && it->second == room) open_rooms_.erase(it);
    return complete;
  }
  return std::make_unique<ThreadsGroup>(std::move(spec), config_, std::move(room));
}

}  // namespace mt::comm
