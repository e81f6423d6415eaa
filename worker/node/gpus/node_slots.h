// The slots that this node offers: what each one is, which job uses it, whether it is in order, and
// what is wrong with the GPUs that are not offered. Joins the fixed table (slot_table.h) with what
// changes: free memory (gpu_guard.h) and GPUs that could be offered since the start (gpu_survey.h).
// Loop thread only; no I/O but through the probe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "worker/node/gpus/gpu_guard.h"
#include "worker/node/gpus/gpu_offer.h"
#include "worker/node/gpus/gpu_probe.h"
#include "worker/node/gpus/gpu_survey.h"
#include "worker/node/gpus/slot_table.h"
#include "worker/node/loop/event_loop.h"

namespace megatrain::v1 {
class Slot;
}

namespace mt::node {

class NodeSlots {
 public:
  // The placement that uses a slot.
  struct User {
    std::string job_uid;
    int64_t epoch = 0;
  };
  // Pointers are not owned and must outlive it.
  struct Deps {
    EventLoop* loop;
    const base::Clock* clock;
    GpuProbe* probe;  // may be null if no GPU is offered
    GpuLimits limits;
    std::chrono::milliseconds survey_interval;
    GpuOffer offer;
    int cpu_slots;
    std::string cpu_problem{};            // why none of them may be used; empty: they are in order
    std::string gpus_wanted;              // --gpus
    std::function<Status()> cuda_module;  // see GpuSurvey::Deps::module
    // Who uses the slot of this number, or its GPU ("" for a CPU slot): a rank of an earlier agent,
    // which may have offered other slots, keeps both.
    std::function<std::optional<User>(int slot, const std::string& gpu)> user_of;
    // A slot went out of order or is in order again, or GpuProblem has changed.
    std::function<void()> changed;
  };
  explicit NodeSlots(Deps deps);

  // Begins to look for GPUs that could be offered.
  void Start() { survey_.Start(); }
  // The agent stops: nothing is probed or waited for any more.
  void Finish();

  const SlotTable& table() const { return table_; }
  int size() const { return table_.size(); }

  // OK if a job that wants this kind of slot may have this one now. kInvalidArgument: it is of the
  // other kind; kFailedPrecondition: it is used or out of order.
  Status Check(int slot, bool wants_gpu) const;
  // Fills in what the slot is, its user and why it is out of order.
  void Describe(int slot, megatrain::v1::Slot* out) const;
  // Why GPUs are not offered: problems found at the start, then those that could be offered since.
  // Empty: all are.
  std::string GpuProblem() const;

  struct Count {
    int used = 0;
    int free = 0;
    int out_of_order = 0;
  };
  // Counts the GPU slots, or the CPU slots.
  Count CountOf(bool gpus) const;
  int num_used() const { return CountOf(true).used + CountOf(false).used; }

  // A rank of an earlier agent runs on this GPU. Before the loop runs.
  void Occupied(const std::string& gpu) { guard_.Occupied(gpu); }
  // The slot is out of order from now on, until the agent starts anew.
  void Break(int slot, const std::string& why);
  // See GpuGuard::AwaitFree.
  void AwaitFree(const std::vector<std::string>& gpus, std::function<void()> done);

 private:
  std::optional<User> UserOf(int slot) const;
  // Why no job may have the slot; empty: it is in order.
  std::string OutOfOrder(int slot) const;

  const Deps deps_;
  const SlotTable table_;
  GpuGuard guard_;
  GpuSurvey survey_;
  std::map<int, std::string> broken_;  // why, by slot
};

}  // namespace mt::node
