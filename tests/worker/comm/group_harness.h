// Runs the same test over every implementation of process groups: ranks are threads of this
// program, and their groups are of worker/comm/threads, of worker/comm/gloo over loopback or of
// worker/comm/shm.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/core/device.h"
#include "worker/comm/group_factory.h"

namespace mt::comm {

enum class Kind { kThreads, kGloo, kShm };

std::string Name(Kind kind);

// The CPU's streams run at once; collectives only carry them.
class InlineStream final : public kernels::Stream {
 public:
  void Wait(kernels::Event& event) override { event.Synchronize(); }
  void Synchronize() override {}
};

// One factory per rank.
class Ranks {
 public:
  Ranks(Kind kind, int num_ranks, CommConfig config = {});
  ~Ranks();
  GroupFactory& factory(int rank);

  // Makes the group `name` of all ranks and, once all are in it, calls body(rank's group) on one
  // thread per rank; the group is destroyed when its body returns. `words`: GroupSpec::words.
  void Run(const std::string& name, const std::function<void(ProcessGroup&)>& body,
           bool words = false);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mt::comm
