#include "worker/train/trainer.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "common/spec/derived.h"
#include "common/spec/print.h"
#include "megatrain/v1/job.pb.h"
#include "worker/checkpoint/exchange.h"
#include "worker/failure/failure.h"
#include "worker/train/run_state.h"
#include "worker/train/trainer_impl.h"

namespace mt::train {
namespace {

Status CheckArgs(const TrainArgs& args) {
  CHECK(args.job != nullptr && args.groups != nullptr && args.backend != nullptr &&
        args.observer != nullptr && args.clock != nullptr);
  const int64_t ranks = args.groups->mesh().world_size();
  const int64_t needed = spec::WorldSize(*args.job);
  if (ranks == needed) return OkStatus();
  return base::FailedPrecondition("the job is laid out for {} ranks, {} were started", needed,
                                  ranks);
}

// Runs `body`; what it throws becomes a status, since no exception leaves the trainer.
template <class Body>
Status Caught(const Body& body) {
  try {
    return body();
  } catch (...) {
    return failure::StatusOfException();
  }
}

// Runs `body`. An error that all ranks share (a verdict over a summed vector, a vote) leaves the
// groups as they are. What this rank alone knows of, a broken group or an exception, ends its part
// in every group: peers that wait for it in another one learn of it and do the same.
template <class Body>
Status Guarded(parallel::RankGroups& groups, const Body& body) {
  bool returned = false;
  Status status = Caught([&] {
    Status mine = body();
    returned = true;
    return mine;
  });
  const Status broken = groups.status();
  if (!broken.ok()) groups.Abort(base::Message(broken));
  if (!returned) groups.Abort(base::Message(status));
  return status;
}

}  // namespace

StatusOr<std::unique_ptr<Trainer>> Trainer::Create(const TrainArgs& args) {
  RETURN_IF_ERROR(CheckArgs(args));
  std::unique_ptr<Impl> impl;
  const Status made = Guarded(*args.groups, [&]() -> Status {
    impl = std::make_unique<Impl>(args);
    return impl->SetUp();
  });
  RETURN_IF_ERROR(made);
  return std::unique_ptr<Trainer>(new Trainer(std::move(impl)));
}

Trainer::Trainer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Trainer::~Trainer() = default;

TrainResult Trainer::Run() {
  TrainResult result;
  const Status thrown = Guarded(impl_->groups(), [&] {
    result = impl_->Run();
    return OkStatus();
  });
  if (!thrown.ok()) result.status = impl_->WithStep(thrown);
  if (!result.status.ok()) result.message = base::Message(result.status);
  return result;
}

std::string Trainer::LastMark() const { return impl_->LastMark(); }
std::string_view Trainer::LastPhase() const { return impl_->LastPhase(); }

Trainer::Impl::Impl(const TrainArgs& args)
    : args_(args),
      job_(std::make_unique<megatrain::v1::JobSpec>(*args.job)),
      total_steps_(spec::TotalIterations(*args.job)),
      stop_at_nonfinite_(args.job->training().nonfinite() !=
                         megatrain::v1::Training::NONFINITE_SKIP),
      loss_scale_constants_(optim::LossScaleFromJob(*args.job)) {}

Trainer::Impl::~Impl() = default;

Status Trainer::Impl::Agree(checkpoint::Exchange* exchange, const Status& mine) {
  const Status all = exchange->Agree(mine);
  return mine.ok() ? failure::WithCause(all, failure::Cause::kNetwork) : mine;
}

Status Trainer::Impl::SetUp() {
  args_.observer->OnState(TrainState::kLoading, 0);
  const auto stream = args_.backend->device().CreateStream(kernels::StreamPriority::kLow);
  checkpoint::Exchange exchange(args_.groups->world(), stream.get());
  RETURN_IF_ERROR(Agree(&exchange, OpenDataAndEngine()));
  ASSIGN_OR_RETURN(start_, FindStart({.job = args_.job,
                                      .checkpoint_root = args_.checkpoint_root,
                                      .job_uid = args_.job_uid,
                                      .epoch = args_.epoch,
                                      .ended_job_uids = args_.ended_job_uids},
                                     &exchange));
  RETURN_IF_ERROR(SettleChoices(&exchange));
  RETURN_IF_ERROR(Agree(&exchange, MakeEngine()));
  RETURN_IF_ERROR(Agree(&exchange, LoadOrInitialize()));
  if (start_.load) RETURN_IF_ERROR(engine_->RebuildWeights());
  MakeParts();
  AnnounceReady();
  return OkStatus();
}

Status Trainer::Impl::OpenDataAndEngine() {
  const megatrain::v1::JobSpec& job = *args_.job;
  auto data =
      OpenRunData({.job = &job, .data_root = args_.data_root, .cache_root = args_.cache_root});
  // A damaged data set is the user's to replace: no checkpoint and no other attempt cures it.
  if (absl::IsDataLoss(data.status()))
    return failure::WithCause(data.status(), failure::Cause::kUserError);
  ASSIGN_OR_RETURN(data_, std::move(data));
  ASSIGN_OR_RETURN(
      engine::EnginePlan plan,
      engine::EnginePlan::Create({.config = engine::EngineConfigFromJob(job, groups().at()),
                                  .backend = args_.backend,
                                  .groups = args_.groups,
                                  .clock = args_.clock,
                                  .memory_limit_bytes = args_.memory_limit_bytes,
                                  .end_of_step = args_.end_of_step}));
  plan_.emplace(std::move(plan));
  return OkStatus();
}

Status Trainer::Impl::MakeEngine() {
  ASSIGN_OR_RETURN(engine_, engine::Engine::Create(*std::move(plan_)));
  return OkStatus();
}

StatusOr<tuning::TuningTables> Trainer::Impl::StoredChoices() const {
  if (!start_.load) return tuning::TuningTables{};
  ASSIGN_OR_RETURN(const checkpoint::Manifest manifest,
                   checkpoint::ReadManifest(start_.load_directory, *start_.load));
  const auto fact = manifest.facts.find(tuning::kTuningFact);
  if (fact == manifest.facts.end()) return tuning::TuningTables{};
  StatusOr<tuning::TuningTables> tables = tuning::ParseTuningTables(fact->second);
  if (tables.ok()) return tables;
  log::Warn("the checkpoint's tuning cannot be read: timed anew, equal to rounding, not to the bit",
            {{"why", base::Message(tables.status())}});
  return tuning::TuningTables{};
}

Status Trainer::Impl::SettleChoices(checkpoint::Exchange* exchange) {
  kernels::TuningTable* const table = args_.backend->tuning();
  if (table == nullptr) return OkStatus();
  StatusOr<tuning::TuningTables> stored = tuning::TuningTables{};
  if (exchange->rank() == 0) stored = StoredChoices();
  RETURN_IF_ERROR(Agree(exchange, stored.status()));
  ASSIGN_OR_RETURN(tuning::SettledTuning settled,
                   tuning::SettleTuning({.table = table,
                                         .exchange = exchange,
                                         .cache_root = args_.cache_root,
                                         .stored = *std::move(stored),
                                         .clock = args_.clock,
                                         .progress = [this] { args_.observer->OnProgress(0); }}));
  tuning_ = std::move(settled.tables);
  return OkStatus();
}

// This rank's weights and its loader.
Status Trainer::Impl::LoadOrInitialize() {
  const megatrain::v1::JobSpec& job = *args_.job;
  if (start_.load) {
    const data::IndexRecord record = data_.train->record();
    ASSIGN_OR_RETURN(const checkpoint::Manifest manifest,
                     LoadState({.job = &job,
                                .directory = start_.load_directory,
                                .id = *start_.load,
                                .train_data = &record,
                                .engine = engine_.get(),
                                .progress = [this](int64_t) { args_.observer->OnProgress(0); }}));
    start_step_ = manifest.step;
    if (is_reporter()) {
      ASSIGN_OR_RETURN(loaded_,
                       RecordOf(start_.load_directory, manifest, job.model().seq_length()));
    }
  } else {
    engine_->Initialize(job.training().seed());
  }
  loss_scale_ = engine_->ReadScalars().loss_scale;
  last_step_ = start_step_;
  read_step_ = start_step_;
  counted_step_ = start_step_;
  acted_step_ = start_step_;
  ASSIGN_OR_RETURN(
      loader_, data::Loader::Create({.dataset = data_.train,
                                     .first_sample = spec::RampOf(job).SamplesAfter(start_step_),
                                     .end_sample = spec::TotalSamples(job),
                                     .micro_batch_size = job.training().micro_batch_size(),
                                     .dp_rank = engine_->dp_rank(),
                                     .dp_size = engine_->dp_size(),
                                     .prefetch = static_cast<int>(job.data().prefetch()),
                                     .threads = static_cast<int>(job.data().loader_threads())}));
  return OkStatus();
}

checkpoint::Manifest Trainer::Impl::ManifestTemplate() const {
  checkpoint::Manifest manifest;
  manifest.job_uid = args_.job_uid;
  manifest.job_epoch = args_.epoch;
  manifest.job_name = args_.job->name();
  if (start_.load) {
    manifest.parent_step = start_.load->step;
    manifest.parent_epoch = start_.load->epoch;
  }
  manifest.spec_json = spec::ToJson(*args_.job);
  manifest.facts["device"] = args_.backend->device().Describe();
  if (!tuning_.empty()) manifest.facts[tuning::kTuningFact] = tuning::ToJson(tuning_);
  manifest.facts["threads_per_rank"] = std::to_string(args_.job->placement().threads_per_rank());
  for (const data::IndexRecord& record : data_.Records()) PutIndexRecord(record, &manifest);
  return manifest;
}

void Trainer::Impl::MakeParts() {
  const megatrain::v1::JobSpec& job = *args_.job;
  const auto& eval = job.training().eval();
  checkpointer_ =
      std::make_unique<Checkpointer>(Checkpointer::Args{.job = job_.get(),
                                                        .start = start_,
                                                        .loaded = loaded_,
                                                        .manifest = ManifestTemplate(),
                                                        .engine = engine_.get(),
                                                        .group = args_.groups->world(),
                                                        .clock = args_.clock,
                                                        .observer = args_.observer,
                                                        .failpoint = args_.checkpoint_failpoint});
  evaluator_ = std::make_unique<Evaluator>(
      Evaluator::Args{.engine = engine_.get(),
                      .data = &data_,
                      .clock = args_.clock,
                      .observer = args_.observer,
                      .every_iters = eval.every_iters(),
                      .samples_per_eval = eval.iters() * job.training().global_batch_size(),
                      .micro_batch_size = job.training().micro_batch_size(),
                      .loader_threads = static_cast<int>(job.data().loader_threads()),
                      .prefetch = static_cast<int>(job.data().prefetch())});
  const auto batch = static_cast<double>(job.training().global_batch_size());
  report_ = {.model_flops_per_sample = spec::ModelFlopsPerStep(job) / batch,
             .model_flops_full_per_sample = spec::FullFlopsPerStep(job) / batch,
             .world_size = spec::WorldSize(job),
             .epoch = args_.epoch > 0 ? args_.epoch : start_.epoch};
  MeasureMemory();
}

void Trainer::Impl::MeasureMemory() {
  const memory::BytesByKind now = engine_->MeasureMemory();
  for (size_t k = 0; k < now.size(); ++k) {
    report_.memory_bytes[k] = std::max(report_.memory_bytes[k], now[k]);
  }
  counters_.memory_bytes = report_.memory_bytes;
}

Status Trainer::Impl::WithStep(const Status& thrown) const {
  return failure::WithCause(
      base::Error(thrown.code(), "in step {} (results are known up to step {}): {}", last_step_ + 1,
                  read_step_, base::Message(thrown)),
      failure::CauseOf(thrown));
}

void Trainer::Impl::AnnounceReady() const {
  log::Info("ready", {{"epoch", start_.epoch},
                      {"resumed_from_step", start_step_},
                      {"total_steps", total_steps_},
                      {"parameters", spec::ParameterCount(args_.job->model())},
                      {"memory_bytes", memory::Total(report_.memory_bytes)}});
  const std::string attention = args_.backend->AttentionKernels();
  if (!attention.empty()) log::Info("attention", {{"kernels", attention}});
  if (is_reporter()) {
    args_.observer->OnRunInfo({.total_steps = total_steps_,
                               .resumed_from_step = start_step_,
                               .checkpoint_path = start_.directory,
                               .parameters = spec::ParameterCount(args_.job->model()),
                               .epoch = start_.epoch});
  }
  args_.observer->OnState(TrainState::kReady, start_step_);
}

}  // namespace mt::train
