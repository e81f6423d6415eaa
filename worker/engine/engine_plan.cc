// What an engine is made of, in the order in which sizes become known: schedules say how many
// microbatches are in flight, the model registers parameters, their layout gives the buckets, and
// each part then reserves its memory.
#include "worker/engine/engine_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/math.h"
#include "worker/engine/stage_work.h"
#include "worker/engine/state_snapshot.h"
#include "worker/engine/step_ring.h"
#include "worker/memory/staging.h"
#include "worker/tuning/tuning.h"

namespace mt::engine {
namespace {

using kernels::DType;

// Microbatches on their way to a GPU: those of the steps that the host may have enqueued, but no
// more than keep the device busy in any case.
constexpr int kMostStaged = 64;
// What the kernels of a GPU can do (kernels/cuda/README.md).
constexpr int64_t kLargestGpuHidden = 16384, kLargestGpuHead = 256;

Status CheckForGpu(const model::GptConfig& config) {
  if (config.dtype == DType::kF64) {
    return base::FailedPrecondition(
        "training.precision: fp64 runs on CPU slots only; use fp32 or bf16, or device cpu");
  }
  if (config.hidden > kLargestGpuHidden) {
    return base::FailedPrecondition("model.hidden_size: {}, on a GPU at most {}", config.hidden,
                                    kLargestGpuHidden);
  }
  if (config.head_dim > kLargestGpuHead) {
    return base::FailedPrecondition("model.head_dim: {}, on a GPU at most {}", config.head_dim,
                                    kLargestGpuHead);
  }
  return OkStatus();
}

parallel::SyncGroups SyncGroupsOf(const parallel::RankGroups& groups) {
  return {.dp_reduce = groups.dp_reduce(),
          .dp_gather = groups.dp_gather(),
          .tensor = groups.tp_control(),
          .tied = groups.tied(),
          .world = groups.control()};
}

}  // namespace

int64_t FreeBytes(kernels::Device& device) {
  const auto memory = device.Memory();
  return memory ? memory->free_bytes : 0;
}

StatusOr<EnginePlan> EnginePlan::Create(const EngineArgs& args) {
  const EngineConfig& config = args.config;
  if (args.backend->device().kind() == kernels::DeviceKind::kCuda) {
    RETURN_IF_ERROR(CheckForGpu(config.model));
  }
  ASSIGN_OR_RETURN(StepSchedules schedules, StepSchedules::Create(config.schedule));
  EnginePlan plan(args, std::move(schedules));
  RETURN_IF_ERROR(plan.PlanMemory());
  return plan;
}

EnginePlan::EnginePlan(const EngineArgs& args, StepSchedules schedules)
    : args_(args),
      free_at_start_(FreeBytes(device())),
      stream_(device().CreateStream(kernels::StreamPriority::kLow)),
      phases_(std::make_unique<PhaseClock>(&device(), stream_.get(), args.clock)),
      schedules_(std::make_unique<StepSchedules>(std::move(schedules))),
      registry_(std::make_unique<params::Registry>()) {
  if (args_.groups->tp() != nullptr) {
    tensor_ = std::make_unique<parallel::TensorParallel>(
        args_.groups->tp(), args_.config.model.shard.cuts_rows(), args_.groups->tp_copies());
    if (device().Enqueues()) tensor_->RunBeside(&device());
    tensor_->TimeWith(args_.spans);
  }
  ChooseShardProducts();
  MakeModel();
  MakeSync();
}

// Not where other bits than those of whole products would come from the CPU, the reference.
void EnginePlan::ChooseShardProducts() {
  model::GptConfig& model = args_.config.model;
  const bool pays = device().kind() == kernels::DeviceKind::kCuda && tensor_ != nullptr &&
                    tensor_->routes().has_copies() && TensorCopies::PaysFor(model.rows());
  model.shard_products = args_.config.tensor_copies.shard_products.value_or(
      pays ? model::ShardProducts::kBeside : model::ShardProducts::kNever);
}

std::vector<parallel::TensorRoutes::Call> EnginePlan::TensorCalls() const {
  using comm::CommOp;
  const model::GptConfig& model = args_.config.model;
  if (!model.shard.cuts_rows())
    return {
        {.op = CommOp::kAllReduce, .count = model.tokens() * model.hidden, .dtype = model.dtype}};
  const int64_t shard = model.rows() * model.hidden;
  return {{.op = CommOp::kAllGather, .count = shard, .dtype = model.dtype},
          {.op = CommOp::kReduceScatter, .count = shard, .dtype = model.dtype}};
}

void EnginePlan::MakeModel() {
  const EngineConfig& config = args_.config;
  const parallel::Schedule& largest = schedules_->largest();
  std::vector<model::GptModel::Chunk> chunks;
  chunks.reserve(config.chunks.size());
  for (const layout::ModelChunk& place : config.chunks) {
    chunks.push_back(
        {.place = place,
         .slots =
             largest.slots[static_cast<size_t>(config.stage)][static_cast<size_t>(place.chunk)]});
  }
  model_ = std::make_unique<model::GptModel>(model::GptModel::Args{
      .config = config.model,
      .chunks = chunks,
      .max_microbatches = MicrobatchWindow(largest, config.stage),
      .staged_microbatches =
          static_cast<int>(std::min<int64_t>(kMostStaged, StepRing::kSteps * largest.microbatches)),
      .accumulates = largest.microbatches > 1,
      .tensor = tensor_.get(),
      .backend = args_.backend,
      .stream = stream_.get()});
  model_->RegisterParams(registry_.get());
  const DType accumulator = kernels::AccumulatorOf(config.model.dtype);
  layout_ = std::make_unique<params::FlatLayout>(params::FlatLayout::Args{
      .registry = registry_.get(),
      .dp_size = args_.groups->axes().SizeOf(layout::kGradientAxes),
      .min_bucket_elements = base::CeilDiv(config.bucket_bytes, kernels::SizeOf(accumulator))});
  store_ = std::make_unique<params::ParamStore>(registry_.get(), layout_.get(), config.model.dtype,
                                                config.share);
}

void EnginePlan::MakeSync() {
  sync_ = std::make_unique<parallel::GradientSync>(
      parallel::GradientSync::Args{.device = &device(),
                                   .update = &args_.backend->update(),
                                   .vector = &args_.backend->vector(),
                                   .store = store_.get(),
                                   .routes = parallel::RoutesOf(*store_, args_.groups->axes()),
                                   .groups = SyncGroupsOf(*args_.groups),
                                   .overlap_reduce = args_.config.overlap_reduce,
                                   .overlap_gather = args_.config.overlap_gather,
                                   .spans = args_.spans});
}

Status EnginePlan::PlanMemory() {
  if (args_.groups->shares_memory()) memory_plan_.ShareWithPeers();
  store_->Plan(&memory_plan_);
  try {
    model_->PlanActivations(&memory_plan_);
  } catch (const kernels::DeviceMemoryError& error) {
    return tuning::NoMemoryForChoices(error);
  }
  sync_->Plan(&memory_plan_);
  if (tensor_ != nullptr) {
    const model::GptConfig& model = args_.config.model;
    tensor_->routes().Plan(&memory_plan_,
                           model.tokens() * model.hidden * kernels::SizeOf(model.dtype));
  }
  memory_plan_.CountTaken(memory::Kind::kComm, args_.groups->communicator_bytes());
  const auto reserve = [this](int64_t bytes) {
    return memory_plan_.Reserve(memory::Kind::kWorkspace, bytes);
  };
  blocks_.scalars = reserve(sizeof(kernels::StepScalars));
  blocks_.vector = reserve(sizeof(StepVector));
  blocks_.eval_sums = reserve(3 * sizeof(double));
  blocks_.uncounted = reserve(2 * sizeof(double));
  if (device().kind() != kernels::DeviceKind::kCpu) {
    blocks_.staging = memory_plan_.Reserve(memory::Kind::kPinned, memory::Staging::kBytes);
  }
  return OkStatus();
}

bool EnginePlan::CanKeepInputs() const {
  const model::GptConfig& config = args_.config.model;
  return config.can_keep_inputs() && !config.keep_inputs;
}

StatusOr<EnginePlan> EnginePlan::WithInputsKept() const {
  EngineArgs args = args_;
  args.config.model.keep_inputs = true;
  ASSIGN_OR_RETURN(EnginePlan plan, Create(args));
  plan.free_at_start_ = free_at_start_;
  return plan;
}

int64_t EnginePlan::SnapshotBytes() const {
  return args_.config.snapshot ? StateSnapshot::BytesOf(*store_) : 0;
}

StatusOr<EnginePlan::Room> EnginePlan::HostRoomWithSnapshot() const {
  ASSIGN_OR_RETURN(int64_t host, memory::AvailableHostBytes());
  const bool on_host = args_.backend->device().kind() == kernels::DeviceKind::kCpu;
  if (on_host && args_.memory_limit_bytes > 0) host = args_.memory_limit_bytes;
  const memory::BytesByKind& planned = memory_plan_.bytes();
  const int64_t others =
      on_host ? memory::Total(planned) : planned[static_cast<size_t>(memory::Kind::kPinned)];
  return Room{.needed = others + SnapshotBytes(), .available = host};
}

StatusOr<EnginePlan::Room> EnginePlan::GpuRoom() const {
  int64_t available = args_.memory_limit_bytes;
  if (available == 0) {
    ASSIGN_OR_RETURN(available, memory::AvailableBytes(device()));
  }
  const memory::BytesByKind planned = memory_plan_.BytesTaken(device());
  const int64_t pinned = planned[static_cast<size_t>(memory::Kind::kPinned)];
  return Room{.needed = memory::Total(planned) - pinned + memory::kLibraryReserveBytes,
              .available = available};
}

void EnginePlan::ReserveSnapshot() {
  blocks_.snapshot = memory_plan_.Reserve(memory::Kind::kPinned, SnapshotBytes());
}

}  // namespace mt::engine
