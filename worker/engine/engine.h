// What one rank computes with: its chunks of the model, their parameters, the optimizer, the
// exchange with other ranks and the block of scalars, in memory planned once. It runs single steps
// (training_step.cc) and evaluations; the trainer decides when and why. Source of the step:
// docs/design/gpu-engine.md#one-step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "kernels/ops/backend.h"
#include "worker/data/loader.h"
#include "worker/engine/action_recordings.h"
#include "worker/engine/engine_plan.h"
#include "worker/engine/phase_clock.h"
#include "worker/engine/stage_work.h"
#include "worker/engine/state_snapshot.h"
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

// One thread.
class Engine {
 public:
  // Times the choices that are still missing, takes the memory and makes the parts.
  // kResourceExhausted (cause OOM) where memory does not suffice.
  static StatusOr<std::unique_ptr<Engine>> Create(EnginePlan plan);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  // Closes the links of the plan's groups, whose threads read and write activations.
  ~Engine();

  // A cold start: the initial values of this seed and the scalars of step 0.
  void Initialize(int64_t seed);

  // One step: all microbatches through the pipeline, the sums over ranks, the update. Enqueues only
  // and waits for the end of step - 3. `command_bits` is this rank's part of the vector. Results
  // come through ring(). The status is the groups'; an error of the loader is kept (fault()) and
  // reported to all ranks in the vector, whose step is then skipped.
  Status RunStep(int64_t step, data::Loader* loader, double command_bits);
  // An idle reduction, as held ranks run it: sums a vector that carries command bits and faults
  // only. Computes nothing, changes no state. Returns the sum; blocks.
  StatusOr<StepVector> RunIdle(double command_bits);
  // The loader's error on this rank, OK if there was none; its later steps contribute nothing.
  const Status& fault() const { return fault_; }
  // Results of the newest steps. Read waits for the step that it returns.
  StepRing& ring() { return ring_; }
  // The steps to come are those of this course, not the plan's: one of the same job, whose batches
  // are at most the plan's largest. `constants` are optim::ConstantsFromJob's.
  void SetCourse(const spec::Course& course, const kernels::StepConstants& constants);
  // The global batch of a step, in samples.
  int64_t BatchOf(int64_t step) const;

  // An evaluation: clears its sums, then adds pass after pass of microbatches of the planned shape;
  // every rank passes as many. `next` gives them in order. The status is the groups'.
  Status BeginEvaluation();
  Status EvaluatePass(int microbatches, const std::function<data::Microbatch()>& next);
  // A microbatch without any token, with which a rank goes on when its data cannot be read.
  data::Microbatch EmptyMicrobatch() const;
  // What of a microbatch this stage uses: inputs where the embedding is, labels where the head is,
  // positions that restart where it adds or turns by them.
  const data::MicrobatchParts& microbatch_parts() const { return microbatch_parts_; }
  // Marks the sums as those of a rank that could not read its part: the total number of tokens
  // comes out negative on every rank.
  void SpoilEvaluation();
  struct EvalSums {
    double loss = 0;
    double tokens = 0;
    double label_bytes = 0;  // of text, that the tokens stand for; NaN: a rank does not know them
  };
  // The sums over all ranks. Blocks.
  StatusOr<EvalSums> FinishEvaluation();

  // Waits until everything under way is done; then scalars and parameters may be read and written.
  Status Synchronize();
  kernels::StepScalars ReadScalars();
  void RestoreScalars(const kernels::StepScalars& scalars);
  // Collective, once every rank has loaded its state: the weights follow from the masters.
  Status RebuildWeights();

  // Parameters and the optimizer's state; the tensors lie in device memory.
  const params::ParamStore& store() const { return *store_; }
  // Bytes that were planned and, on a GPU, those that libraries have taken since the plan was made.
  memory::BytesByKind MeasureMemory();
  // Brings bytes of the store to the host and back, on stream(); nothing else may be under way.
  memory::Staging* staging() { return staging_.get(); }
  // Copies the state while the next step computes; nullptr where the job does not ask for it. The
  // engine's updates wait for its copies.
  StateSnapshot* snapshot() { return snapshot_.get(); }
  kernels::Stream& stream() { return *stream_; }
  // The clock of stream(), with marks at both ends of every action and collective.
  PhaseClock& phases() { return *phases_; }
  const PhaseClock& phases() const { return *phases_; }
  kernels::Device& device() { return args_.backend->device(); }
  // This rank's place among the job's, and the ways of its buckets.
  const layout::GroupAxes& axes() const { return args_.groups->axes(); }
  const std::vector<parallel::BucketRoute>& routes() const { return sync_->routes(); }
  // What became of the collectives inside layers that were raced, a line each; empty: none were.
  std::string TensorRoutesText() const {
    return tensor_ == nullptr ? std::string() : tensor_->routes().ToText();
  }

 private:
  // Binds the parts of the plan to their memory and makes those that need it.
  Engine(EnginePlan plan, std::unique_ptr<memory::Memory> memory);
  void MakeParts();
  void SetHooks();
  // The loader's next microbatch, or after a fault an empty one: the same work, gradients of zero.
  data::Microbatch NextMicrobatch(data::Loader* loader, int64_t step);
  Status RunMicrobatches(int64_t step, data::Loader* loader,
                         const kernels::StepConstants& constants);
  // Blocks until stream() is done. The error of a group that broke before that.
  Status WaitForDevice();
  // The update must not change what a snapshot has yet to copy.
  void AwaitSnapshot();
  // Adds to this rank's vector what the host knows: command bits, fault, wait for the pipeline,
  // bytes of labels.
  void AddHostValues(int64_t step, double command_bits);
  // The test seam on this rank's vector, which must come to the host for it.
  void ChangeVector(int64_t step);

  // Ranks that share the head's matrix compute the same losses: those of the first one count.
  bool counts_losses() const { return axes().leads_tensor_ranks(); }

  // Pinned memory for what the host and the device exchange outside of steps.
  struct HostBlock {
    kernels::StepScalars scalars;
    StepVector vector;
    double sums[3] = {0, 0, 0};
    double label_bytes = 0;
    double spoiled[2] = {0, 0};
  };

  const EngineArgs args_;
  const data::MicrobatchParts microbatch_parts_;
  spec::BatchRamp ramp_;
  kernels::StepConstants constants_;
  const int64_t free_at_start_;  // bytes of a GPU
  std::unique_ptr<kernels::Stream> stream_;
  std::unique_ptr<PhaseClock> phases_;
  std::unique_ptr<parallel::TensorParallel> tensor_;  // nullptr: alone
  std::unique_ptr<StepSchedules> schedules_;
  std::unique_ptr<params::Registry> registry_;
  std::unique_ptr<params::FlatLayout> layout_;
  std::unique_ptr<params::ParamStore> store_;
  std::unique_ptr<model::GptModel> model_;
  std::unique_ptr<memory::Memory> memory_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<parallel::GradientSync> sync_;
  std::unique_ptr<ActionRecordings> recordings_;
  std::unique_ptr<StageWork> work_;
  std::unique_ptr<parallel::Executor> executor_;
  StepRing ring_;
  std::unique_ptr<kernels::DeviceBuffer> pinned_;  // HostBlock
  HostBlock* host_ = nullptr;
  std::unique_ptr<memory::Staging> staging_;  // nullptr on the CPU
  std::unique_ptr<StateSnapshot> snapshot_;   // nullptr without
  Status fault_;
  kernels::StepScalars* scalars_ = nullptr;  // device
  StepVector* vector_ = nullptr;             // device
  double label_bytes_ = 0;                   // of this rank in the step or evaluation under way
  kernels::Tensor eval_sums_;                // f64 [3], device: loss, tokens, bytes of labels
  kernels::Tensor uncounted_;                // f64 [2], device: losses that do not count
};

}  // namespace mt::engine
