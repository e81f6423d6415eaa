// What the members of one asynchronous group share: for each collective the meeting of their calls,
// for each edge the messages on their way.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "kernels/async/async_call.h"
#include "kernels/async/async_world.h"
#include "worker/comm/process_group.h"

namespace mt::comm {

// A collective: the calls of all members, which run as one.
struct Collective : kernels::async::Meeting {
  std::vector<ProcessGroup::Call> calls;  // [member]
  size_t num_known = 0;                   // of them
};

// A message, whose two ends may be enqueued in either order.
struct Message {
  std::shared_ptr<kernels::async::Point> sent = std::make_shared<kernels::async::Point>();
  std::shared_ptr<kernels::async::Point> received = std::make_shared<kernels::async::Point>();
  std::shared_ptr<Collective> pair;  // without a window: the two calls as one
  kernels::DType dtype = kernels::DType::kU8;
  int64_t count = 0;
  std::vector<std::byte> bytes;  // from when it is sent to when it is received
};

// Thread-safe; what it returns is changed by calls of the world alone, once it is enqueued.
class AsyncRoom {
 public:
  AsyncRoom(std::string name, const std::vector<int>& members)
      : name_(std::move(name)),
        members_(members),
        joined_(members.size(), false),
        num_calls_(members.size(), 0) {}

  // Registers a member; true if it is the last one. kFailedPrecondition if its member list differs
  // or it joins twice.
  StatusOr<bool> Join(const GroupSpec& spec);
  // The meeting for this member's next collective.
  std::shared_ptr<Collective> Next(int member, const ProcessGroup::Call& call);

  struct Edge {
    int from = 0;
    int to = 0;
    int edge = 0;
    friend auto operator<=>(const Edge&, const Edge&) = default;
  };
  // The next message that this end sends or receives, and the one `window` before it (nullptr:
  // none).
  struct Ends {
    std::shared_ptr<Message> message;
    std::shared_ptr<Message> before;
  };
  Ends NextMessage(const Edge& edge, bool sends, int window);

  // Set by a member that breaks the group (AsyncWorld::Cancel).
  const std::shared_ptr<std::atomic<bool>>& broken() const { return broken_; }

 private:
  std::shared_ptr<Collective> MakeCollective(size_t size, const ProcessGroup::Call& first) const;

  const std::string name_;
  const std::vector<int> members_;
  const std::shared_ptr<std::atomic<bool>> broken_ = std::make_shared<std::atomic<bool>>(false);
  base::Mutex mu_;
  std::vector<bool> joined_ GUARDED_BY(mu_);
  size_t num_joined_ GUARDED_BY(mu_) = 0;
  std::vector<int64_t> num_calls_ GUARDED_BY(mu_);  // [member]
  // Those that not all members have called, by number.
  std::map<int64_t, std::shared_ptr<Collective>> collectives_ GUARDED_BY(mu_);
  std::map<std::pair<Edge, bool>, int64_t> num_messages_ GUARDED_BY(mu_);  // of each end
  std::map<std::pair<Edge, int64_t>, std::shared_ptr<Message>> messages_ GUARDED_BY(mu_);
};

// Runs a collective of all members, or a Send and its Recv. Throws DeviceError if they differ.
void RunCollective(const Collective& all);

}  // namespace mt::comm
