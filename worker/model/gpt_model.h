// What one rank holds of a GPT: the chunks of its pipeline stage, each a run of layers (stage.h),
// and the microbatches that they work on. Forward and Backward are actions on (chunk, slot,
// microbatch), in any order that a schedule gives them; tensors at the chunks' borders are written
// and read by whoever moves them. Order of use: RegisterParams, PlanActivations (both before memory
// is allocated), Bind, then any number of steps, which allocate nothing on the device. One thread;
// on a GPU the calls only enqueue.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/layout/layer_split.h"
#include "kernels/ops/backend.h"
#include "worker/data/microbatch.h"
#include "worker/memory/memory.h"
#include "worker/model/batch.h"
#include "worker/model/gpt_config.h"
#include "worker/model/position_tables.h"
#include "worker/model/stage.h"
#include "worker/parallel/tensor_parallel.h"
#include "worker/params/bucket_countdown.h"
#include "worker/params/param_store.h"
#include "worker/params/registry.h"

namespace mt::model {

// Borders of the work that an action enqueues: Forward and Backward report their begin and end;
// phase times are the differences.
enum class Phase : uint8_t { kForwardBegin, kForwardEnd, kBackwardBegin, kBackwardEnd };

// Called on the calling thread as the work is enqueued (on a CPU slot: as it is done). Unset: none.
struct GptHooks {
  std::function<void(Phase)> on_phase;
  // In a chunk's last microbatch only: every gradient of this bucket (of the store's layout) has
  // been written. A chunk's buckets come in the same order in every step and on every replica; the
  // head's, whose gradient its forward writes, may come within Forward.
  std::function<void(int bucket)> on_bucket_ready;
};

class GptModel {
 public:
  // A chunk of this rank, and how many microbatches may be between its forward and its backward.
  struct Chunk {
    layout::ModelChunk place;
    int slots = 1;
  };
  struct Args {
    GptConfig config;             // with this rank's shard
    std::vector<Chunk> chunks;    // of this pipeline stage: chunks[c].place.chunk is c
    int max_microbatches = 1;     // loaded at once: those of a step
    int staged_microbatches = 3;  // on their way to the device at once
    // Whether a step may have several microbatches: then their gradients are added up.
    bool accumulates = true;
    parallel::TensorParallel* tensor = nullptr;  // nullptr: nobody shares the matrices
    kernels::Backend* backend = nullptr;
    kernels::Stream* stream = nullptr;
  };
  struct StepArgs {
    // kOverwrite in a step's first microbatch.
    kernels::GradMode mode = kernels::GradMode::kOverwrite;
    bool last = false;  // the step's last microbatch: on_bucket_ready is called
    double seed = 0;    // constant of every token's gradient: 1 / (global batch * sequence)
    const kernels::StepScalars* scalars = nullptr;  // loss scale is read through it
    // f64 [2], added to: sum of weight * loss, sum of weight. By the head alone; every rank of a
    // tensor group adds the same numbers.
    kernels::Tensor sums;
  };

  // Tensor group, backend and stream must outlive the model. CHECKs config and chunks.
  explicit GptModel(const Args& args);
  // The whole network in one chunk, one microbatch at a time.
  GptModel(const GptConfig& config, kernels::Backend* backend, kernels::Stream* stream);
  GptModel(const GptModel&) = delete;
  GptModel& operator=(const GptModel&) = delete;

  const GptConfig& config() const { return args_.config; }
  int num_chunks() const { return static_cast<int>(chunks_.size()); }
  const layout::ModelChunk& place(int chunk) const { return At(chunk).place; }

  // Adds the parameters of all chunks, each in the order of the network. Once.
  void RegisterParams(params::Registry* registry);
  // Reserves kept activations, scratch and the microbatches' inputs. After RegisterParams, once.
  void PlanActivations(memory::MemoryPlan* plan);
  // Takes the memory that was planned and the parameters' views. Memory and store must outlive the
  // model.
  void Bind(const memory::Memory& memory, const params::ParamStore& store);
  void SetHooks(GptHooks hooks) { hooks_ = std::move(hooks); }

  // Copies a microbatch, in stream order, to where actions on `microbatch` (below
  // max_microbatches) find it. `batch` is not needed afterwards. Waits where as many as can be
  // staged are on their way already.
  void LoadBatch(int microbatch, const data::Microbatch& batch);

  // Runs the chunk on the slot: from the loaded tokens or input(chunk, slot) to output(chunk, slot)
  // or, with the head, to args.sums and the gradients that the head writes.
  void Forward(int chunk, int slot, int microbatch, const StepArgs& args);
  // After Forward of the same three: from output_grad(chunk, slot), unless the chunk has the head,
  // to the gradients of the parameters and input_grad(chunk, slot).
  void Backward(int chunk, int slot, int microbatch, const StepArgs& args);
  // Forward without dropout, keeping nothing and touching no gradient; the head adds to `sums`.
  void Evaluate(int chunk, int slot, int microbatch, const kernels::Tensor& sums);

  // [R, h], at fixed addresses: what crosses the chunk's borders. Input and its gradient are absent
  // with the embedding, output and its gradient with the head. Whoever fills input and output_grad
  // may do so once the slot's last backward is enqueued; output and input_grad stay until the
  // slot's next action.
  const kernels::Tensor& input(int chunk, int slot) const;
  const kernels::Tensor& output(int chunk, int slot) const;
  const kernels::Tensor& output_grad(int chunk, int slot) const;
  const kernels::Tensor& input_grad(int chunk, int slot) const;

  // Of a rank that has the whole network: load, forward and backward; load and evaluate.
  void ForwardBackward(const data::Microbatch& batch, const StepArgs& args);
  void Evaluate(const data::Microbatch& batch, const kernels::Tensor& sums);

 private:
  struct ChunkState {
    ChunkState(const GptConfig& config, const Chunk& chunk, int64_t head_chunk_tokens);

    const layout::ModelChunk place;
    Stage stage;
    std::unique_ptr<params::BucketCountdown> countdown;  // since Bind
    std::function<void(params::ParamId)> gradient_done;
    // Set from the last microbatch's forward to its backward: the countdown runs.
    bool counting = false;
  };

  ChunkState& At(int chunk) const { return *chunks_[static_cast<size_t>(chunk)]; }
  Pass MakePass(int microbatch) const;
  // Of an action of a training step.
  Pass MakePass(ChunkState* chunk, int microbatch, const StepArgs& args) const;
  void TakeScratch(memory::StackArena* arena);
  void Report(Phase phase) const;
  // Tells the hook of the bucket that this parameter completes.
  void GradientDone(ChunkState* chunk, params::ParamId id) const;

  const Args args_;
  std::vector<std::unique_ptr<ChunkState>> chunks_;
  std::vector<BatchBuffer> batches_;
  BatchStaging staging_;
  PositionTables tables_;
  GptHooks hooks_;
  bool bound_ = false;
  kernels::Workspace workspace_;  // of all ops
  memory::Block kept_block_, scratch_block_;
};

}  // namespace mt::model
