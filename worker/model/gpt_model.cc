// Distributes memory among chunks and microbatches, and surrounds each action with its marks and
// the countdown of its buckets.
#include "worker/model/gpt_model.h"

#include <algorithm>
#include <optional>

#include "common/base/check.h"
#include "common/base/math.h"

namespace mt::model {
namespace {

using kernels::Tensor;

constexpr int64_t kHeadChunkTokensCpu = 1024;
constexpr int64_t kHeadChunkTokensGpu = 8192;

int64_t HeadChunkTokens(const GptConfig& config, kernels::Backend* backend) {
  if (config.head_chunk_tokens > 0) return config.head_chunk_tokens;
  if (backend->device().kind() == kernels::DeviceKind::kCpu) return kHeadChunkTokensCpu;
  // The largest number of chunks that are no smaller than that, of nearly equal size: a short last
  // chunk would be slow.
  constexpr int64_t kTile = 128;  // rows of a GEMM tile
  const int64_t chunks = std::max<int64_t>(1, config.tokens() / kHeadChunkTokensGpu);
  return base::RoundUp(base::CeilDiv(config.tokens(), chunks), kTile);
}

Stage::Args StageArgs(const GptModel::Chunk& chunk, int64_t head_chunk_tokens) {
  return {.first_layer = chunk.place.first_layer,
          .num_layers = chunk.place.num_layers,
          .embedding = chunk.place.has_embedding,
          .head = chunk.place.has_head,
          .slots = static_cast<size_t>(chunk.slots),
          .head_chunk_tokens = head_chunk_tokens};
}

GptModel::Args WholeModel(const GptConfig& config, kernels::Backend* backend,
                          kernels::Stream* stream) {
  return {
      .config = config,
      .chunks = {{.place = {.num_layers = config.layers, .has_embedding = true, .has_head = true}}},
      .backend = backend,
      .stream = stream};
}

void CheckArgs(const GptModel::Args& args) {
  CheckConfig(args.config);
  CHECK(!args.chunks.empty() && args.max_microbatches > 0);
  for (size_t c = 0; c < args.chunks.size(); ++c) {
    CHECK_EQ(static_cast<size_t>(args.chunks[c].place.chunk), c);
    CHECK_GT(args.chunks[c].slots, 0);
  }
  const TensorShard& shard = args.config.shard;
  if (args.tensor == nullptr) {
    CHECK_EQ(shard.size, 1) << "ranks that share matrices need a group";
    return;
  }
  CHECK(args.tensor->rank() == shard.rank && args.tensor->size() == shard.size &&
        args.tensor->sequence_parallel() == shard.cuts_rows())
      << "the tensor group is not the config's";
}

}  // namespace

GptModel::ChunkState::ChunkState(const GptConfig& config, const Chunk& chunk,
                                 int64_t head_chunk_tokens)
    : place(chunk.place), stage(config, StageArgs(chunk, head_chunk_tokens)) {}

GptModel::GptModel(const Args& args)
    : args_((CheckArgs(args), args)),
      staging_(args.config, args.staged_microbatches),
      tables_(args.config) {
  const int64_t head_chunk_tokens = HeadChunkTokens(args.config, args.backend);
  for (const Chunk& chunk : args.chunks) {
    chunks_.push_back(std::make_unique<ChunkState>(args.config, chunk, head_chunk_tokens));
    ChunkState* state = chunks_.back().get();
    state->gradient_done = [this, state](params::ParamId id) { GradientDone(state, id); };
    state->layer_begins = [this, state](int layer) {
      if (hooks_.on_layer) hooks_.on_layer(state->place.chunk, layer);
    };
  }
  for (int i = 0; i < args.max_microbatches; ++i) {
    batches_.emplace_back(args.config);
  }
}

GptModel::GptModel(const GptConfig& config, kernels::Backend* backend, kernels::Stream* stream)
    : GptModel(WholeModel(config, backend, stream)) {}

void GptModel::RegisterParams(params::Registry* registry) {
  for (const auto& chunk : chunks_) {
    registry->BeginChunk(chunk->place.chunk);
    chunk->stage.Register(registry);
  }
}

void GptModel::PlanActivations(memory::MemoryPlan* plan) {
  for (BatchBuffer& batch : batches_) batch.Plan(plan);
  staging_.Plan(plan);
  tables_.Plan(plan);
  auto kept = memory::StackArena::Measuring();
  for (const auto& chunk : chunks_) chunk->stage.TakeKept(&kept);
  kept_block_ = plan->Reserve(memory::Kind::kActivations, kept.peak_bytes());
  auto scratch = memory::StackArena::Measuring();
  TakeScratch(&scratch);
  scratch_block_ = plan->Reserve(memory::Kind::kWorkspace, scratch.peak_bytes());
}

void GptModel::Bind(const memory::Memory& memory, const params::ParamStore& store) {
  CHECK(store.weight_dtype() == args_.config.dtype);
  for (BatchBuffer& batch : batches_) batch.Bind(memory, args_.backend->device(), *args_.stream);
  staging_.Bind(memory, args_.backend->device());
  tables_.Bind(memory, args_.backend->device(), *args_.stream);
  memory::StackArena kept(memory.Data(kept_block_), kept_block_.bytes);
  for (const auto& chunk : chunks_) {
    chunk->stage.Bind(store);
    chunk->stage.TakeKept(&kept);
    chunk->countdown =
        std::make_unique<params::BucketCountdown>(&store.layout(), chunk->place.chunk);
  }
  memory::StackArena scratch(memory.Data(scratch_block_), scratch_block_.bytes);
  TakeScratch(&scratch);
  bound_ = true;
}

// Actions run one after another, so all chunks share the same scratch.
void GptModel::TakeScratch(memory::StackArena* arena) {
  const Pass shapes = MakePass(0);
  ScratchPlan plan = {.arena = arena, .pass = &shapes, .accumulates = args_.accumulates};
  const int64_t mark = arena->Mark();
  for (const auto& chunk : chunks_) {
    chunk->stage.TakeScratch(&plan);
    arena->Release(mark);
  }
  arena->TakeWorkspace(arena->peak_bytes());
  workspace_ = arena->TakeWorkspace(plan.workspace_bytes);
}

void GptModel::LoadBatch(int microbatch, const data::Microbatch& batch) {
  CHECK(bound_) << "Bind first";
  CHECK(microbatch >= 0 && microbatch < args_.max_microbatches)
      << "microbatch " << microbatch << " of " << args_.max_microbatches;
  batches_[static_cast<size_t>(microbatch)].Load(batch, &staging_, args_.backend->device(),
                                                 *args_.stream);
}

void GptModel::Forward(int chunk, int slot, int microbatch, const StepArgs& args) {
  CHECK(bound_ && args.scalars != nullptr);
  ChunkState* state = &At(chunk);
  if (args.last) {
    CHECK(!state->counting) << "chunk " << chunk << " has not finished its last microbatch";
    state->countdown->Reset();
    state->counting = true;
  }
  Report(Phase::kForwardBegin);
  state->stage.Forward(
      MakePass(state, microbatch, args), static_cast<size_t>(slot),
      {.seed = args.seed, .loss_scale = &args.scalars->loss_scale, .sums = args.sums});
  Report(Phase::kForwardEnd);
}

void GptModel::Backward(int chunk, int slot, int microbatch, const StepArgs& args) {
  ChunkState* state = &At(chunk);
  CHECK(!args.last || state->counting) << "backward before forward";
  Report(Phase::kBackwardBegin);
  state->stage.Backward(MakePass(state, microbatch, args), static_cast<size_t>(slot));
  Report(Phase::kBackwardEnd);
  if (!args.last) return;
  CHECK(state->countdown->AllDone()) << "a gradient was not written";
  state->counting = false;
}

void GptModel::Evaluate(int chunk, int slot, int microbatch, const Tensor& sums) {
  CHECK(bound_) << "Bind first";
  Pass pass = MakePass(microbatch);
  pass.training = false;
  At(chunk).stage.Forward(pass, static_cast<size_t>(slot), {.sums = sums});
}

const Tensor& GptModel::input(int chunk, int slot) const {
  return At(chunk).stage.input(static_cast<size_t>(slot));
}
const Tensor& GptModel::output(int chunk, int slot) const {
  return At(chunk).stage.output(static_cast<size_t>(slot));
}
const Tensor& GptModel::output_grad(int chunk, int slot) const {
  return At(chunk).stage.output_grad(static_cast<size_t>(slot));
}
const Tensor& GptModel::input_grad(int chunk, int slot) const {
  return At(chunk).stage.input_grad(static_cast<size_t>(slot));
}

void GptModel::ForwardBackward(const data::Microbatch& batch, const StepArgs& args) {
  CHECK(num_chunks() == 1 && place(0).has_embedding && place(0).has_head);
  LoadBatch(0, batch);
  Forward(0, 0, 0, args);
  Backward(0, 0, 0, args);
}

void GptModel::Evaluate(const data::Microbatch& batch, const Tensor& sums) {
  CHECK(num_chunks() == 1 && place(0).has_embedding && place(0).has_head);
  LoadBatch(0, batch);
  Evaluate(0, 0, 0, sums);
}

Pass GptModel::MakePass(int microbatch) const {
  return {.backend = args_.backend,
          .stream = args_.stream,
          .tensor = args_.tensor,
          .batch = &batches_[static_cast<size_t>(microbatch)].view(),
          .tables = &tables_,
          .workspace = workspace_};
}

Pass GptModel::MakePass(ChunkState* chunk, int microbatch, const StepArgs& args) const {
  Pass pass = MakePass(microbatch);
  pass.mode = args.mode;
  if (args.last) pass.gradient_done = &chunk->gradient_done;
  if (args.by_layer) pass.layer_begins = &chunk->layer_begins;
  return pass;
}

void GptModel::Report(Phase phase) const {
  if (hooks_.on_phase) hooks_.on_phase(phase);
}

void GptModel::GradientDone(ChunkState* chunk, params::ParamId id) const {
  const std::optional<int> bucket = chunk->countdown->MarkDone(id);
  if (bucket && hooks_.on_bucket_ready) hooks_.on_bucket_ready(*bucket);
}

}  // namespace mt::model
