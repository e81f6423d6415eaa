// The part of a GPT that one rank holds: the chunks of its pipeline stage, each a sequence of
// layers (stage.h), and the microbatches they work on. Forward and Backward are actions on (chunk,
// slot, microbatch), in any order that a schedule gives; the tensors at chunk boundaries are filled
// and read by the caller. Order of use: RegisterParams and PlanActivations before memory is
// allocated, Bind, then any number of steps, which allocate nothing on the device. Used by one
// thread; on a GPU calls only enqueue.
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

// Marks around the work that an action enqueues: Forward and Backward report their begin and end,
// and phase times are the differences.
enum class Phase : uint8_t { kForwardBegin, kForwardEnd, kBackwardBegin, kBackwardEnd };

// Callbacks on the calling thread, made when the work is enqueued (on a CPU slot: when it is done).
// May be empty.
struct GptHooks {
  std::function<void(Phase)> on_phase;
  // Called in a chunk's last microbatch of a step, when every gradient of this bucket (of the
  // store's layout) has been written. The order of a chunk's buckets is the same in every step and
  // on every replica. The head writes gradients in its forward, so its buckets may be reported
  // within Forward.
  std::function<void(int bucket)> on_bucket_ready;
  // Called in forward where StepArgs::by_layer is set, before the weights of a layer of the chunk
  // are read; the head is the layer behind the last one. Those outside of layers are read before.
  std::function<void(int chunk, int layer)> on_layer;
};

class GptModel {
 public:
  // A chunk of this rank, and the number of microbatches that may be between its forward and
  // backward.
  struct Chunk {
    layout::ModelChunk place;
    int slots = 1;
  };
  struct Args {
    GptConfig config;             // including this rank's shard
    std::vector<Chunk> chunks;    // chunks[c].place.chunk must be c
    int max_microbatches = 1;     // loaded at the same time: those of a step
    int staged_microbatches = 3;  // copies to the device in flight
    // True if a step may have several microbatches, whose gradients are then accumulated.
    bool accumulates = true;
    parallel::TensorParallel* tensor = nullptr;  // nullptr: no tensor parallelism
    kernels::Backend* backend = nullptr;
    kernels::Stream* stream = nullptr;
  };
  struct StepArgs {
    // kOverwrite in a step's first microbatch, else kAdd.
    kernels::GradMode mode = kernels::GradMode::kOverwrite;
    bool last = false;      // the step's last microbatch: on_bucket_ready is called
    bool by_layer = false;  // on_layer is called
    double seed = 0;        // gradient of the loss: 1 / (global batch * sequence)
    const kernels::StepScalars* scalars = nullptr;  // in device memory; has the loss scale
    // f64 [2], accumulated: sum of weight * loss, sum of weight. Written by the head only; every
    // rank of a tensor group adds the same numbers.
    kernels::Tensor sums;
  };

  // Tensor group, backend and stream must outlive the model. CHECKs config, chunks and group.
  explicit GptModel(const Args& args);
  // The whole network in one chunk, with one microbatch at a time.
  GptModel(const GptConfig& config, kernels::Backend* backend, kernels::Stream* stream);
  GptModel(const GptModel&) = delete;
  GptModel& operator=(const GptModel&) = delete;

  const GptConfig& config() const { return args_.config; }
  int num_chunks() const { return static_cast<int>(chunks_.size()); }
  const layout::ModelChunk& place(int chunk) const { return At(chunk).place; }

  // Adds the parameters of all chunks, in the order of the network. Call once.
  void RegisterParams(params::Registry* registry);
  // Reserves kept activations, scratch and the microbatches' inputs. Call once, after
  // RegisterParams.
  void PlanActivations(memory::MemoryPlan* plan);
  // Binds the planned memory and the parameters' views. Memory and store must outlive the model.
  // Blocks until position tables are written.
  void Bind(const memory::Memory& memory, const params::ParamStore& store);
  void SetHooks(GptHooks hooks) { hooks_ = std::move(hooks); }

  // Copies a microbatch in stream order to where actions on `microbatch` (< max_microbatches,
  // CHECK) find it. `batch` is not needed after the call. Blocks while staged_microbatches copies
  // are in flight.
  void LoadBatch(int microbatch, const data::Microbatch& batch);

  // Enqueues a chunk's forward: from the loaded tokens or input(chunk, slot) to output(chunk, slot)
  // or, with the head, to args.sums and the gradients that the head writes.
  void Forward(int chunk, int slot, int microbatch, const StepArgs& args);
  // Enqueues the backward that belongs to a Forward of the same arguments: from output_grad(chunk,
  // slot), unless the chunk has the head, to the gradients of the parameters and input_grad(chunk,
  // slot). CHECKs in the last microbatch that every gradient was written.
  void Backward(int chunk, int slot, int microbatch, const StepArgs& args);
  // Enqueues a forward without dropout and gradients; the head adds to `sums`.
  void Evaluate(int chunk, int slot, int microbatch, const kernels::Tensor& sums);

  // The tensors at the chunk's boundaries, [R, h] at fixed addresses. Input and its gradient are
  // empty with the embedding, output and its gradient with the head. input and output_grad may be
  // filled once the slot's previous backward is enqueued; output and input_grad are valid until the
  // slot's next action.
  const kernels::Tensor& input(int chunk, int slot) const;
  const kernels::Tensor& output(int chunk, int slot) const;
  const kernels::Tensor& output_grad(int chunk, int slot) const;
  const kernels::Tensor& input_grad(int chunk, int slot) const;

  // For a rank that has the whole network (CHECK): load, forward and backward; load and evaluate.
  void ForwardBackward(const data::Microbatch& batch, const StepArgs& args);
  void Evaluate(const data::Microbatch& batch, const kernels::Tensor& sums);

 private:
  struct ChunkState {
    ChunkState(const GptConfig& config, const Chunk& chunk, int64_t head_chunk_tokens);

    const layout::ModelChunk place;
    Stage stage;
    std::unique_ptr<params::BucketCountdown> countdown;  // created by Bind
    std::function<void(params::ParamId)> gradient_done;
    std::function<void(int)> layer_begins;
    // True from the last microbatch's forward to its backward, while the countdown is running.
    bool counting = false;
  };

  ChunkState& At(int chunk) const { return *chunks_[static_cast<size_t>(chunk)]; }
  Pass MakePass(int microbatch) const;
  // The Pass of an action in a training step.
  Pass MakePass(ChunkState* chunk, int microbatch, const StepArgs& args) const;
  void TakeScratch(memory::StackArena* arena);
  void Report(Phase phase) const;
  // Reports the bucket that this parameter completes, if any, to the hook.
  void GradientDone(ChunkState* chunk, params::ParamId id) const;

  const Args args_;
  std::vector<std::unique_ptr<ChunkState>> chunks_;
  std::vector<BatchBuffer> batches_;
  BatchStaging staging_;
  PositionTables tables_;
  GptHooks hooks_;
  bool bound_ = false;
  kernels::Workspace workspace_;  // shared by all ops
  memory::Block kept_block_, scratch_block_;
};

}  // namespace mt::model
