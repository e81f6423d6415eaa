// Runs the same test over every implementation of process groups: ranks are threads of this
// program, and their groups are of worker/comm/threads, of worker/comm/gloo over loopback or of
// worker/comm/shm.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
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

// Who has left a barrier knows that all have come, not that all have left it: one that breaks the
// group right after it may end it for the others. A test that does so waits here until all are out.
class AllAreOut {
 public:
  explicit AllAreOut(int num_ranks) : inside_(num_ranks) {}
  void Wait() {
    --inside_;
    while (inside_ > 0) std::this_thread::yield();
  }

 private:
  std::atomic<int> inside_;
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
