// A whole GPT on one rank: one stage of all layers, forward and backward of one microbatch at a
// time. Order of use: RegisterParams, PlanActivations (both before memory is allocated), Bind, then
// any number of ForwardBackward and Evaluate calls, which allocate nothing on the device. One
// thread; on a GPU the calls only enqueue.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "kernels/ops/backend.h"
#include "worker/data/microbatch.h"
#include "worker/memory/memory.h"
#include "worker/model/batch.h"
#include "worker/model/gpt_config.h"
#include "worker/model/stage.h"
#include "worker/params/bucket_countdown.h"
#include "worker/params/param_store.h"
#include "worker/params/registry.h"

namespace mt::model {

// Borders of the work that a microbatch enqueues, in this order; phase times are the differences.
enum class Phase : uint8_t { kForwardBegin, kForwardEnd, kBackwardBegin, kBackwardEnd };

// Called on the calling thread as the work is enqueued (on a CPU slot: as it is done). Unset: none.
struct GptHooks {
  std::function<void(Phase)> on_phase;
  // In the last microbatch only: every gradient of this bucket (of the store's layout) has been
  // written. The order is the same in every step and on every replica.
  std::function<void(int bucket)> on_bucket_ready;
};

class GptModel {
 public:
  struct MicrobatchArgs {
    kernels::GradMode mode = kernels::GradMode::kOverwrite;  // overwrite in a step's first one
    bool last = false;  // the step's last microbatch: on_bucket_ready is called
    double seed = 0;    // constant of every token's gradient: 1 / (global batch * sequence)
    const kernels::StepScalars* scalars = nullptr;  // loss scale is read through it
    kernels::Tensor sums;  // f64 [2], added to: sum of weight * loss, sum of weight
  };

  // The backend and the stream must outlive the model. CHECKs the config.
  GptModel(const GptConfig& config, kernels::Backend* backend, kernels::Stream* stream);
  GptModel(const GptModel&) = delete;
  GptModel& operator=(const GptModel&) = delete;

  const GptConfig& config() const { return config_; }

  // Adds the parameters, in the order of the network. Once.
  void RegisterParams(params::Registry* registry);
  // Reserves kept activations, scratch and the microbatch's inputs. After RegisterParams, once.
  void PlanActivations(memory::MemoryPlan* plan);
  // Takes the memory that was planned and the parameters' views. Memory and store must outlive the
  // model.
  void Bind(const memory::Memory& memory, const params::ParamStore& store);
  void SetHooks(GptHooks hooks) { hooks_ = std::move(hooks); }

  // Loss and gradients of one microbatch of the planned shape; gradients into the store's buffers.
  void ForwardBackward(const data::Microbatch& batch, const MicrobatchArgs& args);
  // Adds to sums (f64 [2]) without dropout and without touching any gradient.
  void Evaluate(const data::Microbatch& batch, const kernels::Tensor& sums);

 private:
  Pass MakePass() const;
  void Report(Phase phase) const;
  // Tells the hook of the bucket that this parameter completes.
  void GradientDone(params::ParamId id);

  const GptConfig config_;
  kernels::Backend* backend_;
  kernels::Stream* stream_;
  Stage stage_;
  BatchBuffer batch_;
  GptHooks hooks_;
  std::unique_ptr<params::BucketCountdown> countdown_;  // since Bind
  std::function<void(params::ParamId)> gradient_done_;
  memory::Block kept_block_, scratch_block_;
};

}  // namespace mt::model
