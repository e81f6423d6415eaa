// An engine before it has memory: the model's chunks, the layout of their parameters, the exchange
// with other ranks, and what all of it needs. Ranks settle the choices that are made by timing
// (worker/tuning) while they hold plans, because timing needs room on the device; then
// Engine::Create consumes the plan. The order of construction is thus a matter of types: there is
// no engine without memory, and a plan computes nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "kernels/ops/backend.h"
#include "worker/engine/engine_config.h"
#include "worker/engine/phase_clock.h"
#include "worker/engine/step_schedules.h"
#include "worker/engine/step_vector.h"
#include "worker/memory/memory.h"
#include "worker/model/gpt_model.h"
#include "worker/parallel/comm_spans.h"
#include "worker/parallel/gradient_sync.h"
#include "worker/parallel/groups/rank_groups.h"
#include "worker/parallel/tensor_parallel.h"
#include "worker/params/flat_layout.h"
#include "worker/params/param_store.h"
#include "worker/params/registry.h"

namespace mt::engine {

// The pointers must outlive plan and engine.
struct EngineArgs {
  EngineConfig config;
  kernels::Backend* backend = nullptr;
  parallel::RankGroups* groups = nullptr;
  const base::Clock* clock = nullptr;
  int64_t memory_limit_bytes = 0;        // 0: memory::AvailableBytes once all choices are made
  parallel::CommSpans* spans = nullptr;  // times communication of steps; nullptr: nothing does
  // Test seam: may change this rank's vector of a step (0: an idle reduction) before it is summed.
  std::function<void(int64_t step, StepVector* mine)> end_of_step;
};

// One thread; can be moved. Holds host memory only, apart from a stream and a ring of marks.
class EnginePlan {
 public:
  // Sizes everything and registers every choice of algorithm with the backend's tuning table.
  // kFailedPrecondition where the device cannot do what the model asks for; kResourceExhausted
  // (cause OOM) where it has no room to choose algorithms.
  static StatusOr<EnginePlan> Create(const EngineArgs& args);

  // Whether forward could keep the gathered inputs of branches (GptConfig::keep_inputs) and this
  // plan does not: the same on all ranks.
  bool CanKeepInputs() const;
  // The same engine, which keeps them: more activations, two gathers a layer fewer in backward.
  StatusOr<EnginePlan> WithInputsKept() const;

  // Host memory for a StateSnapshot of this rank; 0 where the config asks for none.
  int64_t SnapshotBytes() const;
  // What this rank would take of its machine's memory with the snapshot, and what that has free (on
  // a CPU memory_limit_bytes, if given) for all the ranks there.
  struct Room {
    int64_t needed = 0;
    int64_t available = 0;
  };
  StatusOr<Room> HostRoomWithSnapshot() const;
  // The same of a GPU's memory, which is this rank's alone. What kernels take that are loaded
  // before the engine allocates counts as if it were kLibraryReserveBytes.
  StatusOr<Room> GpuRoom() const;
  bool on_gpu() const { return device().kind() != kernels::DeviceKind::kCpu; }
  // Plans it; the engine has no snapshot otherwise.
  void ReserveSnapshot();

 private:
  friend class Engine;  // takes the plan apart

  // The engine's own pieces of the planned memory.
  struct Blocks {
    memory::Block scalars, vector, eval_sums, uncounted;
    memory::Block staging;   // empty on the CPU
    memory::Block snapshot;  // empty without one
  };

  EnginePlan(const EngineArgs& args, StepSchedules schedules);
  void ChooseShardProducts();
  // The large collectives inside layers.
  std::vector<parallel::TensorRoutes::Call> TensorCalls() const;
  void MakeModel();
  void MakeSync();
  Status PlanMemory();
  kernels::Device& device() const { return args_.backend->device(); }

  EngineArgs args_;
  int64_t free_at_start_;  // bytes of a GPU
  std::unique_ptr<kernels::Stream> stream_;
  std::unique_ptr<PhaseClock> phases_;
  std::unique_ptr<parallel::TensorParallel> tensor_;  // nullptr: alone
  std::unique_ptr<StepSchedules> schedules_;
  std::unique_ptr<params::Registry> registry_;
  std::unique_ptr<params::FlatLayout> layout_;
  std::unique_ptr<params::ParamStore> store_;
  std::unique_ptr<model::GptModel> model_;
  std::unique_ptr<parallel::GradientSync> sync_;
  memory::MemoryPlan memory_plan_;
  Blocks blocks_;
};

// Free memory of a GPU; 0 on the CPU.
int64_t FreeBytes(kernels::Device& device);

}  // namespace mt::engine
