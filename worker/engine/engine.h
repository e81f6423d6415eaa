// What one rank computes with: its chunks of the model, their parameters, the optimizer, the
// exchange with other ranks and the block of scalars, in memory planned once. It runs single steps
// and evaluations; when and why is the trainer's. Source of the step:
// docs/design/gpu-engine.md#one-step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "common/base/status.h"
#include "kernels/ops/backend.h"
#include "worker/data/loader.h"
#include "worker/engine/action_recordings.h"
#include "worker/engine/engine_config.h"
#include "worker/engine/phase_clock.h"
#include "worker/engine/stage_work.h"
#include "worker/engine/step_ring.h"
#include "worker/engine/step_schedules.h"
#include "worker/engine/step_vector.h"
#include "worker/memory/memory.h"
#include "worker/memory/staging.h"
#include "worker/model/gpt_model.h"
#include "worker/optim/optimizer.h"
#include "worker/parallel/gradient_sync.h"
#include "worker/parallel/groups/rank_groups.h"
#include "worker/parallel/pipeline/executor.h"
#include "worker/parallel/tensor_parallel.h"
#include "worker/params/param_store.h"

namespace mt::engine {

// One thread. The pointers of Args must outlive the engine.
class Engine {
 public:
  struct Args {
    EngineConfig config;
    kernels::Backend* backend = nullptr;
    parallel::RankGroups* groups = nullptr;
    const base::Clock* clock = nullptr;
    int64_t memory_limit_bytes = 0;  // 0: memory::AvailableBytes once all choices are made
    std::function<void(int64_t step, StepVector* mine)> end_of_step;  // test seam
  };
  // kResourceExhausted (cause OOM) where memory does not suffice; kFailedPrecondition where the
  // device cannot do what the model asks for.
  static StatusOr<std::unique_ptr<Engine>> Create(const Args& args);
  // The same in two steps: sizes of everything and what must be chosen by timing; then, once the
  // ranks have settled their choices (tuning.h), the memory. Choices that are still missing are
  // timed first. Nothing else may be called in between.
  static StatusOr<std::unique_ptr<Engine>> CreatePlanned(const Args& args);
  Status TakeMemory();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  // Closes the links of args.groups.
  ~Engine();

  // A cold start: initial values of this seed, scalars of step 0.
  void Initialize(int64_t seed);

  // One step: all microbatches through the pipeline, the sums over ranks, the update. `command` is
  // the word that this rank's vector carries. Results come through ring(). The status is the
  // groups'; an error of the loader is kept (fault()) and told to all ranks by the vector, whose
  // step is then skipped.
  Status RunStep(int64_t step, data::Loader* loader, double command);
  // What held ranks do: sums a vector of nothing but the word and the faults. No compute, no state
  // moves. Returns the sum; blocks.
  StatusOr<StepVector> RunIdle(double command);
  // What the loader failed with on this rank; from then on its steps contribute nothing.
  const Status& fault() const { return fault_; }
  // Results of the newest steps; wait for the one that is read.
  StepRing& ring() { return ring_; }
  // The global batch of a step, in samples.
  int64_t BatchOf(int64_t step) const;

  // An evaluation: clears its sums, then adds pass after pass of microbatches of the planned shape;
  // every rank passes as many. `next` gives them in order. The status is the groups'.
  Status BeginEvaluation();
  Status EvaluatePass(int microbatches, const std::function<data::Microbatch()>& next);
  // A microbatch without any token: what a rank goes on with whose data cannot be read.
  data::Microbatch EmptyMicrobatch() const;
  // Marks the sums as those of a rank that could not read its part: the total number of tokens
  // comes out negative on every rank.
  void SpoilEvaluation();
  struct EvalSums {
    double loss = 0;
    double tokens = 0;
  };
  // The sums over all ranks. Blocks.
  StatusOr<EvalSums> FinishEvaluation();

  // Waits until everything under way is done; then scalars and parameters may be read and written.
  Status Synchronize();
  kernels::StepScalars ReadScalars();
  void RestoreScalars(const kernels::StepScalars& scalars);
  // Collective, once every rank has loaded its state: the weights follow from the masters.
  Status RebuildWeights();

  // Its tensors lie in device memory.
  const params::ParamStore& store() const { return *store_; }
  // What was planned, and on a GPU what its libraries were seen to take since the engine's start.
  memory::BytesByKind MeasureMemory();
  // Brings bytes of the store to the host and back, on stream(); nothing else may be under way.
  memory::Staging* staging() { return staging_.get(); }
  kernels::Stream& stream() { return *stream_; }
  // Of stream(): marks at both ends of every action and collective.
  PhaseClock& phases() { return phases_; }
  const PhaseClock& phases() const { return phases_; }
  kernels::Device& device() { return args_.backend->device(); }
  int dp_rank() const { return sync_->dp_rank(); }
  int dp_size() const { return sync_->dp_size(); }
  int tp_rank() const { return args_.groups->at().tp; }

 private:
  explicit Engine(const Args& args);
  Status Plan();
  void Bind();
  void MakeModel();
  void MakeParts();
  void SetHooks();
  parallel::SyncGroups SyncGroupsOfRank() const;
  // The loader's next microbatch, or after a fault an empty one: the same work, gradients of zero.
  data::Microbatch NextMicrobatch(data::Loader* loader, int64_t step);
  Status RunMicrobatches(int64_t step, data::Loader* loader, const kernels::StepConstants& now);
  Status FinishStep(int64_t step, double command, const kernels::StepConstants& now);
  // The test seam on this rank's vector, which must come to the host for it.
  void ChangeVector(int64_t step);

  // Whether losses count here: ranks that share the head's matrix compute the same ones.
  bool counts_losses() const { return tp_rank() == 0; }

  // What the host and the device hand each other outside of steps.
  struct HostBlock {
    kernels::StepScalars scalars;
    StepVector vector;
    double sums[2] = {0, 0};
    double spoiled[2] = {0, 0};
  };

  const Args args_;
  const int64_t free_at_start_;  // bytes of a GPU
  std::unique_ptr<kernels::Stream> stream_;
  PhaseClock phases_;
  std::unique_ptr<parallel::TensorParallel> tensor_;  // nullptr: alone
  std::unique_ptr<StepSchedules> schedules_;
  params::Registry registry_;
  std::unique_ptr<params::FlatLayout> layout_;
  std::unique_ptr<params::ParamStore> store_;
  std::unique_ptr<model::GptModel> model_;
  memory::MemoryPlan plan_;
  std::unique_ptr<memory::Memory> memory_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<parallel::GradientSync> sync_;
  std::unique_ptr<ActionRecordings> recordings_;
  std::unique_ptr<StageWork> work_;
  std::unique_ptr<pipeline::Executor> executor_;
  StepRing ring_;
  std::unique_ptr<kernels::DeviceBuffer> pinned_;  // HostBlock
  HostBlock* host_ = nullptr;
  std::unique_ptr<memory::Staging> staging_;  // null on the CPU
  Status fault_;
  memory::Block scalars_block_, vector_block_, eval_block_, uncounted_block_, staging_block_;
  kernels::StepScalars* scalars_ = nullptr;  // device
  StepVector* vector_ = nullptr;             // device
  kernels::Tensor eval_sums_;                // f64 [2], device
  kernels::Tensor uncounted_;                // f64 [2], device: losses that do not count
};

}  // namespace mt::engine
