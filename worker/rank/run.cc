#include "worker/rank/run.h"

#include <chrono>
#include <exception>
#include <numeric>
#include <utility>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "kernels/cpu/cpu_backend.h"
#include "megatrain/v1/job.pb.h"
#include "worker/comm/gloo/gloo_factory.h"
#include "worker/train/failure.h"

namespace mt::rank {
namespace {

// Tells who asked of the group, and that it goes, whichever way the scope is left.
class GroupLease {
 public:
  GroupLease(const std::function<void(comm::ProcessGroup*)>& on_group, comm::ProcessGroup* group)
      : on_group_(on_group) {
    if (on_group_) on_group_(group);
  }
  ~GroupLease() {
    if (on_group_) on_group_(nullptr);
  }
  GroupLease(const GroupLease&) = delete;
  GroupLease& operator=(const GroupLease&) = delete;

 private:
  const std::function<void(comm::ProcessGroup*)>& on_group_;
};

comm::GroupSpec WorldSpec(const RunArgs& args) {
  comm::GroupSpec spec{.name = "dp/0", .members = {}, .my_index = args.rank};
  spec.members.resize(static_cast<size_t>(args.world_size));
  std::iota(spec.members.begin(), spec.members.end(), 0);
  return spec;
}

StatusOr<train::TrainResult> TrainWith(const RunArgs& args, kernels::Backend* backend,
                                       comm::ProcessGroup* group) {
  train::TrainArgs train_args;
  train_args.job = args.job;
  train_args.job_uid = args.job_uid;
  train_args.epoch = args.epoch;
  train_args.ended_job_uids = args.ended_job_uids;
  train_args.data_root = args.data_root;
  train_args.checkpoint_root = args.checkpoint_root;
  train_args.cache_root = args.cache_root;
  train_args.group = group;
  train_args.backend = backend;
  train_args.observer = args.observer;
  train_args.commands = args.commands;
  train_args.hold = args.hold;
  ASSIGN_OR_RETURN(const std::unique_ptr<train::Trainer> trainer,
                   train::Trainer::Create(train_args));
  train::TrainResult result = trainer->Run();
  if (result.status.ok() && group != nullptr) {
    // Nobody leaves while a peer still reads what it sent; all work is done, so a peer that is gone
    // already costs nothing.
    const auto stream = backend->device().CreateStream(kernels::StreamPriority::kLow);
    const Status left = group->Barrier(*stream);
    if (!left.ok()) log::Debug("a peer left first", {{"why", base::Message(left)}});
  }
  return result;
}

StatusOr<train::TrainResult> RunGuarded(const RunArgs& args) {
  const int threads = static_cast<int>(args.job->placement().threads_per_rank());
  ASSIGN_OR_RETURN(const std::unique_ptr<kernels::Backend> backend,
                   kernels::cpu::MakeCpuBackend({.num_threads = threads}));
  log::Info("compute device", {{"device", backend->device().Describe()}});
  if (args.world_size == 1) return TrainWith(args, backend.get(), nullptr);
  const base::MonotonicTime begin = base::Clock::Real()->Now();
  comm::CommConfig config;
  config.bind_address = args.address;
  ASSIGN_OR_RETURN(const std::unique_ptr<comm::GroupFactory> factory,
                   comm::MakeGlooFactory(args.store, config));
  ASSIGN_OR_RETURN(const std::unique_ptr<comm::ProcessGroup> group,
                   factory->Create(WorldSpec(args)));
  if (args.on_comm_init) {
    args.on_comm_init(std::chrono::duration<double>(base::Clock::Real()->Now() - begin).count());
  }
  const GroupLease lease(args.on_group, group.get());
  return TrainWith(args, backend.get(), group.get());
}

train::TrainResult Failed(Status status) {
  train::TrainResult result;
  result.status = std::move(status);
  return result;
}

}  // namespace

train::TrainResult Run(const RunArgs& args) {
  try {
    auto result = RunGuarded(args);
    return result.ok() ? std::move(result).value() : Failed(result.status());
  } catch (const kernels::DeviceError& error) {
    return Failed(
        train::WithCause(base::Internal("device: {}", error.what()), train::Cause::kHardware));
  } catch (const std::bad_alloc&) {
    return Failed(
        train::WithCause(base::Error(absl::StatusCode::kResourceExhausted, "out of host memory"),
                         train::Cause::kOutOfMemory));
  } catch (const std::exception& error) {
    return Failed(base::Internal("{}", error.what()));
  }
}

}  // namespace mt::rank
