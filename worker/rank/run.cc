// Construction order: backend, groups, trainer, each destroyed in reverse order whatever happens. A
// benchmark wraps backend and observer (worker/bench).
#include "worker/rank/run.h"

#include <chrono>
#include <optional>
#include <utility>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/spec/derived.h"
#include "common/spec/job_kind.h"
#include "megatrain/v1/job.pb.h"
#include "worker/bench/bench_run.h"
#include "worker/comm/call_check.h"
#include "worker/comm/copies/copy_factory.h"
#include "worker/comm/gloo/gloo_factory.h"
#include "worker/comm/host_identity.h"
#include "worker/comm/nccl/nccl_factory.h"
#include "worker/comm/nccl/nccl_library.h"
#include "worker/comm/shm/shm_factory.h"
#include "worker/failure/failure.h"
#include "worker/rank/compute_device.h"

namespace mt::rank {
namespace {

// Notifies a listener of an object on construction and, with nullptr, on destruction, whichever way
// the scope is left.
template <class T>
class Lease {
 public:
  using Listener = std::function<void(T*)>;
  Lease(const Listener& listener, T* thing) : listener_(listener) {
    if (listener_) listener_(thing);
  }
  ~Lease() {
    if (listener_) listener_(nullptr);
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

 private:
  const Listener& listener_;
};

StatusOr<train::TrainResult> TrainWith(const RunArgs& args, kernels::Backend* backend,
                                       parallel::RankGroups* groups) {
  train::TrainArgs train_args;
  train_args.job = args.job;
  train_args.job_uid = args.job_uid;
  train_args.epoch = args.epoch;
  train_args.ended_job_uids = args.ended_job_uids;
  train_args.data_root = args.data_root;
  train_args.base = args.base;
  train_args.restart = args.restart;
  train_args.checkpoint_root = args.checkpoint_root;
  train_args.make_checkpoint_root = args.make_checkpoint_root;
  train_args.cache_root = args.cache_root;
  train_args.checkpoint_root_id = args.checkpoint_root_id;
  train_args.epoch_open = args.epoch_open;
  train_args.kept_steps = args.kept_steps;
  train_args.groups = groups;
  train_args.backend = backend;
  train_args.tensor_copies.race = true;
  train_args.observer = args.observer;
  std::optional<bench::BenchRun> bench;  // must outlive the trainer, which uses its backend
  if (spec::KindOf(*args.job).is_timed) {
    bench.emplace(bench::BenchRun::Args{.job = args.job,
                                        .rank = args.rank,
                                        .backend = backend,
                                        .world = groups->world(),
                                        .next = args.observer,
                                        .trace_file = args.trace_file});
    train_args.backend = bench->backend();
    train_args.observer = &*bench;
    train_args.trace = bench->steps_to_trace();
  }
  train_args.commands = args.commands;
  train_args.trace_directory = args.trace_directory;
  train_args.hold = args.hold;
  train_args.host_delay = args.host_delay;
  ASSIGN_OR_RETURN(const std::unique_ptr<train::Trainer> trainer,
                   train::Trainer::Create(train_args));
  const Lease<const train::Trainer> lease(args.on_trainer, trainer.get());
  train::TrainResult result = trainer->Run();
  const bool trained = result.status.ok();
  if (!trained) log::Info("at the end", {{"device", trainer->LastMark()}});
  if (bench) {
    const Status finished =
        bench->Finish(result.completed ? result.status : base::Unavailable("stopped"));
    if (result.status.ok()) result.status = finished;
  }
  if (trained && groups->world() != nullptr) {
    // Final barrier: no rank leaves while a peer still reads what it has sent, in any group. All
    // work is done, so a peer that is already gone is no error.
    const auto stream = backend->device().CreateStream(kernels::StreamPriority::kLow);
    const Status left = groups->world()->Barrier(*stream);
    if (!left.ok()) log::Debug("a peer left first", {{"why", base::Message(left)}});
  }
  return result;
}

// Of groups that move what lies in a GPU's memory; all nullptr where that is the host's.
struct DeviceFactories {
  std::unique_ptr<comm::GroupFactory> nccl, copies, checked_nccl, checked_copies;

  comm::GroupFactory* all() const { return checked_nccl ? checked_nccl.get() : nccl.get(); }
  comm::GroupFactory* over_copies() const {
    return checked_copies ? checked_copies.get() : copies.get();
  }
};

StatusOr<DeviceFactories> MakeDeviceFactories(const RunArgs& args, const comm::CommConfig& config,
                                              comm::GroupFactory* host, kernels::Backend* backend) {
  DeviceFactories made;
  if (!backend->device().Enqueues()) return made;
  const auto library = comm::LoadNccl();
  RETURN_IF_ERROR(failure::WithCause(library.status(), failure::Cause::kHardware));
  log::Info("communication between GPUs",
            {{"nccl", (*library)->Version()}, {"library", (*library)->path}});
  made.nccl = comm::MakeNcclFactory(args.store, config, *library, &backend->device());
  made.copies = comm::MakeCopyFactory({.host = host,
                                       .otherwise = made.nccl.get(),
                                       .device = &backend->device(),
                                       .vector = &backend->vector(),
                                       .config = config});
  if (!args.job->training().debug_collectives()) return made;
  made.checked_nccl = comm::MakeCheckedFactory(made.nccl.get(), host, config);
  made.checked_copies = comm::MakeCheckedFactory(made.copies.get(), host, config);
  return made;
}

StatusOr<train::TrainResult> RunGuarded(RunArgs& args) {
  std::unique_ptr<kernels::Backend> backend = std::move(args.backend);
  if (backend == nullptr) {
    ASSIGN_OR_RETURN(backend, MakeBackend(*args.job, {.uuid = args.gpu, .ordinal = args.rank}));
  }
  const int64_t needed = spec::WorldSize(*args.job);
  if (needed != args.world_size) {
    return base::FailedPrecondition("the job is laid out for {} ranks, {} were started", needed,
                                    args.world_size);
  }
  if (args.world_size == 1) {
    ASSIGN_OR_RETURN(const auto alone,
                     parallel::RankGroups::CreateForJob(*args.job, 0, nullptr, nullptr));
    return TrainWith(args, backend.get(), alone.get());
  }
  const base::MonotonicTime begin = base::Clock::Real()->Now();
  comm::CommConfig config;
  config.bind_address = args.address;
  config.host = comm::HostIdentity(args.node);
  const auto& timeouts = args.job->resilience().timeouts();
  if (timeouts.has_comm_init())
    config.connect_timeout = std::chrono::milliseconds(timeouts.comm_init());
  config.op_timeout = spec::CollectiveTimeout(*args.job);
  ASSIGN_OR_RETURN(const std::unique_ptr<comm::GroupFactory> tcp,
                   comm::MakeGlooFactory(args.store, config));
  const std::unique_ptr<comm::GroupFactory> shared_memory =
      comm::MakeShmFactory(args.store, config, tcp.get());
  comm::GroupFactory* const factory = args.tcp_only ? tcp.get() : shared_memory.get();
  ASSIGN_OR_RETURN(const DeviceFactories on_device,
                   MakeDeviceFactories(args, config, factory, backend.get()));
  ASSIGN_OR_RETURN(
      const std::unique_ptr<parallel::RankGroups> groups,
      parallel::RankGroups::CreateForJob(*args.job, args.rank, factory, &backend->device(),
                                         on_device.all(), on_device.over_copies()));
  if (args.on_comm_init) {
    args.on_comm_init(std::chrono::duration<double>(base::Clock::Real()->Now() - begin).count());
  }
  const Lease<parallel::RankGroups> lease(args.on_groups, groups.get());
  return TrainWith(args, backend.get(), groups.get());
}

train::TrainResult Failed(Status status) {
  train::TrainResult result;
  result.status = std::move(status);
  return result;
}

}  // namespace

train::TrainResult Run(RunArgs args) {
  try {
    auto result = RunGuarded(args);
    return result.ok() ? std::move(result).value() : Failed(result.status());
  } catch (...) {
    return Failed(failure::StatusOfException());
  }
}

}  // namespace mt::rank
