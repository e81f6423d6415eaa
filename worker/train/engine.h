// What one rank computes with: the model, its parameters, the optimizer, the replicas' sums and the
// block of scalars, in memory planned once. It runs single steps and microbatches; when and why is
// the trainer's. Source of the step: gpu-engine's "One rank", with one stage and no tensor axis.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "common/base/status.h"
#include "kernels/ops/backend.h"
#include "worker/data/loader.h"
#include "worker/memory/memory.h"
#include "worker/model/gpt_model.h"
#include "worker/optim/optimizer.h"
#include "worker/parallel/data_parallel.h"
#include "worker/params/param_store.h"
#include "worker/train/phase_clock.h"
#include "worker/train/step_ring.h"

namespace mt::train {

// One thread. The pointers of Args must outlive the engine.
class Engine {
 public:
  struct Args {
    model::GptConfig model;
    kernels::StepConstants constants;
    optim::AdamConfig adam;
    int64_t microbatches = 1;  // per step and replica
    kernels::Backend* backend = nullptr;
    comm::ProcessGroup* group = nullptr;  // nullptr: one replica
    PhaseClock* phases = nullptr;
    int64_t memory_limit_bytes = 0;
    std::function<void(int64_t step, kernels::EndOfStep* mine)> end_of_step;  // test seam
  };
  // kResourceExhausted (cause OOM) where memory does not suffice.
  static StatusOr<std::unique_ptr<Engine>> Create(const Args& args);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // A cold start: initial values of this seed, scalars of step 0.
  void Initialize(int64_t seed);

  // One step: all microbatches, the replicas' sums, the update. `command` is the word that this
  // rank's vector carries. Results come through ring(). The status is the group's; an error of the
  // loader is kept (fault()) and told to all ranks by the vector, whose step is then skipped.
  Status RunStep(int64_t step, data::Loader* loader, double command);
  // What held ranks do: sums a vector of nothing but the word and the faults. No compute, no state
  // moves. Returns the sum; blocks.
  StatusOr<kernels::EndOfStep> RunIdle(double command);
  // What the loader failed with on this rank; from then on its steps contribute nothing.
  const Status& fault() const { return fault_; }
  // Results of the newest steps; wait for the one that is read.
  StepRing& ring() { return ring_; }

  // An evaluation: clears its sums, then adds one microbatch after the other.
  void BeginEvaluation();
  void EvaluateMicrobatch(const data::Microbatch& batch);
  // Marks the sums as those of a rank that could not read its part: the total number of tokens
  // comes out negative on every rank.
  void SpoilEvaluation();
  struct EvalSums {
    double loss = 0;
    double tokens = 0;
  };
  // The sums over all replicas. Blocks.
  StatusOr<EvalSums> FinishEvaluation();

  // Waits until everything enqueued is done; then scalars and parameters may be read and written.
  void Synchronize() { stream_->Synchronize(); }
  kernels::StepScalars ReadScalars();
  // Sets the scalars and, under 16-bit precision, rounds the weights from the loaded master.
  void RestoreScalars(const kernels::StepScalars& scalars);

  const params::ParamStore& store() const { return *store_; }
  const params::Registry& registry() const { return registry_; }
  const memory::BytesByKind& memory_bytes() const { return memory_->Report(); }
  kernels::Stream& stream() { return *stream_; }
  kernels::Device& device() { return args_.backend->device(); }
  int dp_rank() const { return data_parallel_.rank(); }
  int dp_size() const { return data_parallel_.size(); }

 private:
  explicit Engine(const Args& args);
  Status Build();
  void SetHooks();
  // The loader's next microbatch, or after a fault one without any token: the same work, gradients
  // of zero.
  const data::Microbatch& NextMicrobatch(data::Loader* loader, int64_t step);
  void FinishStep(int64_t step, double command);

  const Args args_;
  std::unique_ptr<kernels::Stream> stream_;
  params::Registry registry_;
  std::unique_ptr<params::FlatLayout> layout_;
  std::unique_ptr<params::ParamStore> store_;
  std::unique_ptr<model::GptModel> model_;
  std::unique_ptr<memory::Memory> memory_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  parallel::DataParallel data_parallel_;
  StepRing ring_;
  Status fault_;
  memory::Block scalars_block_, vector_block_, eval_block_;
  kernels::StepScalars* scalars_ = nullptr;  // device
  kernels::EndOfStep* vector_ = nullptr;     // device
  kernels::Tensor eval_sums_;                // f64 [2], device
};

}  // namespace mt::train
