// Process groups for ranks on AsyncDevices of one world: each call is enqueued on its stream, a
// collective runs once it is next on the streams of all members. Bits are those of the other groups
// (worker/comm/reduce.h). Two calls of one group on streams without an order are a race, of operand
// 'group', since members might run them in different orders.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/base/mutex.h"
#include "kernels/async/async_world.h"
#include "worker/comm/group_factory.h"

namespace mt::comm {

class AsyncRoom;

// Shared by all ranks; the world must outlive it and its groups. Thread-safe. Unlike other
// factories Create does not wait for the other members, since hosts of a world must not.
class AsyncHub final : public GroupFactory {
 public:
  struct Args {
    kernels::async::AsyncWorld* world = nullptr;
    // Messages of an edge that a Send may be ahead; 0: a Send and its Recv run as one, which a
    // program that relies on no buffers survives.
    int send_window = ProcessGroup::kSendWindow;
    // Calls move host memory and block, as groups between CPUs do; their hosts wait in the world.
    bool on_host = false;
    CommConfig config;
    // CommConfig::host of a rank, where they are not all on one host.
    std::function<std::string(int rank)> host_of = {};
  };
  explicit AsyncHub(Args args) : args_(std::move(args)) {}

  // kFailedPrecondition if members name different member lists.
  StatusOr<std::unique_ptr<ProcessGroup>> Create(GroupSpec spec) override;

 private:
  const Args args_;
  base::Mutex mu_;
  // Rooms that still lack members, by group name.
  std::map<std::string, std::shared_ptr<AsyncRoom>> open_rooms_ GUARDED_BY(mu_);
};

}  // namespace mt::comm
