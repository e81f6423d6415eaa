// A save beside training: the state at the end of one step is copied to host memory while the next
// step computes, and a thread writes and commits it, with a process group of its own. The training
// thread begins it and, some steps later, takes its outcome. One at a time. On CPU slots, where the
// cores compute, the thread that writes rests most of the time, unless somebody waits for it.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "worker/checkpoint/writer.h"
#include "worker/engine/state_snapshot.h"

namespace mt::train {

// What has become of a save.
struct SaveOutcome {
  StatusOr<checkpoint::SaveResult> saved;
  StatusOr<std::vector<std::string>> pruned;  // names of the folders; on rank 0
};

// The training thread's; ended() may be called from any.
class BackgroundSave {
 public:
  // Device and group (all ranks; nullptr: one) outlive it. The group is used by nobody else.
  BackgroundSave(kernels::Device* device, comm::ProcessGroup* group);
  // Waits for a save that is under way; its outcome is lost.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  struct Order {
    checkpoint::SaveArgs save;  // slices in the store's memory; group and stream are set here
    engine::StateSnapshot* snapshot = nullptr;  // outlives the save
    kernels::Stream* computes = nullptr;        // the state is there after its work so far
    bool rests = true;                          // on CPU slots
    std::function<StatusOr<std::vector<std::string>>()> prune;  // after a commit; may be empty
  };
  // Collective: every rank begins the same save. CHECKs that none is under way.
  void Begin(Order order);
  // From Begin until Finish.
  bool under_way() const { return thread_.joinable(); }
  // The thread is done: Finish will not block.
  bool ended() const { return ended_; }
  // Blocks until the save that is under way has ended (CHECK: there is one). Its status is the same
  // on all ranks, unless the group broke.
  SaveOutcome Finish();

 private:
  void Run(Order order);
  void Join() LOCKS_EXCLUDED(mu_);
  void Rest() LOCKS_EXCLUDED(mu_);

  comm::ProcessGroup* const group_;
  const bool computes_here_;                       // on CPU slots every core computes
  const std::unique_ptr<kernels::Stream> stream_;  // of the group's collectives
  std::chrono::nanoseconds worked_{0};             // CPU time of the thread at its last rest
  std::optional<SaveOutcome> outcome_;             // the thread's until it is joined
  std::atomic<bool> ended_ = false;
  std::thread thread_;
  base::Mutex mu_;
  base::CondVar changed_;
  bool awaited_ GUARDED_BY(mu_) = false;  // somebody waits for the save: it does not rest
};

}  // namespace mt::train
