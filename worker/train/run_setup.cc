// The order of setting up. Every stage that one rank can fail in ends with an agreement, so that no
// rank waits in the next collective for one that has given up.
#include "worker/train/run_setup.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/layout/group_axes.h"
#include "common/spec/derived.h"
#include "common/spec/print.h"
#include "common/spec/roots.h"
#include "megatrain/v1/job.pb.h"
#include "worker/checkpoint/inspect/run_totals.h"
#include "worker/checkpoint/inspect/saved_tokenizer.h"
#include "worker/failure/failure.h"
#include "worker/train/job_data/job_tokenizer.h"
#include "worker/train/load_state.h"
#include "worker/train/run_state.h"
#include "worker/train/setup/agreement.h"
#include "worker/train/setup/optional_memory.h"

namespace mt::train {

namespace {

// They stay until somebody removes them, so it is said at each start.
OtherRuns OtherRunsOf(const std::string& directory, const std::string& run) {
  OtherRuns all;
  if (directory.empty()) return all;
  const auto totals = checkpoint::OtherRunsIn(directory, run);
  if (!totals.ok()) return all;
  for (const checkpoint::RunTotal& one : *totals) {
    ++all.runs;
    all.checkpoints += one.checkpoints;
    all.bytes += one.bytes;
  }
  if (all.runs > 0) {
    log::Info("checkpoints of other runs lie in the directory and stay there",
              {{"runs", all.runs},
               {"checkpoints", all.checkpoints},
               {"bytes", all.bytes},
               {"directory", directory}});
  }
  return all;
}

}  // namespace

RunParts::RunParts() = default;
RunParts::RunParts(RunParts&& other) noexcept = default;
RunParts::~RunParts() = default;

RunSetup::RunSetup(const TrainArgs& args) : args_(args) {
  parts_.job = std::make_unique<megatrain::v1::JobSpec>(*args.job);
  parts_.course = spec::CourseOf(*args.job);
}

RunSetup::~RunSetup() = default;

Status RunSetup::Run() {
  // The slowest rank to load is waited for as long as its agent and the coordinator do.
  const comm::OpTimeoutScope patience(args_.groups->world(), spec::LoadTimeout(*args_.job));
  args_.observer->OnState(TrainState::kLoading, 0);
  const auto stream = args_.backend->device().CreateStream(kernels::StreamPriority::kLow);
  checkpoint::Exchange exchange(args_.groups->world(), stream.get());
  RETURN_IF_ERROR(Agree(&exchange, OpenDataAndPlan()));
  RETURN_IF_ERROR(CompareVocabularies(&exchange));
  ASSIGN_OR_RETURN(start_, FindStart(ArgsOfStart(), &exchange));
  RETURN_IF_ERROR(SettleChoices(&exchange));
  const int64_t texts = TextWriter::PlannedBytes(*args_.job, args_.groups->axes());
  RETURN_IF_ERROR(PlanInputs(texts, &exchange, &plan_));
  RETURN_IF_ERROR(PlanSnapshot(*args_.job, texts, &exchange, &plan_));
  RETURN_IF_ERROR(Agree(&exchange, MakeEngine()));
  RETURN_IF_ERROR(LoadIntact(&exchange));
  RETURN_IF_ERROR(CheckExitAtIter());
  if (start_.load || !start_.foreign.empty()) RETURN_IF_ERROR(parts_.engine->RebuildWeights());
  ASSIGN_OR_RETURN(run_, NameRun(ArgsOfStart(), &start_, &exchange));
  if (loaded_) loaded_->run = run_.loaded;
  const auto& tokenizer = parts_.data->tokenizer;
  if (is_rank_0() && tokenizer)
    KeepBesideCheckpoints(args_.data_root, *args_.job, *tokenizer, start_.directory);
  if (IsComplete()) parts_.complete_run = run_.record.id;
  MakeParts();
  AnnounceReady();
  return OkStatus();
}

Status RunSetup::CompareVocabularies(checkpoint::Exchange* exchange) const {
  ASSIGN_OR_RETURN(const std::vector<std::string> all,
                   exchange->AllGather(std::to_string(args_.job->model().vocab_size())));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] != all[0]) {
      return base::FailedPrecondition(
          "rank {} has a vocabulary of {}, rank 0 one of {}: their data roots differ (the data's "
          ".tokenizer.json among them); model.vocab_size settles it",
          rank, all[rank], all[0]);
    }
  }
  return OkStatus();
}

Status RunSetup::OpenDataAndPlan() {
  const megatrain::v1::JobSpec& job = *args_.job;
  args_.observer->OnActivity({.kind = ActivityKind::kIndexing});
  auto data = OpenRunData({.job = &job,
                           .course = parts_.course,
                           .data_root = args_.data_root,
                           .cache_root = args_.cache_root});
  args_.observer->OnActivityEnd(ActivityKind::kIndexing);
  // Data that are damaged or not there are the user's to put right: no checkpoint cures them. A job
  // that has trained waits for them.
  if (!data.ok()) {
    const failure::Cause cause = absl::IsDataLoss(data.status()) ? failure::Cause::kUserError
                                                                 : failure::CauseOf(data.status());
    return NameMissingData(failure::WithCause(data.status(), cause));
  }
  parts_.data = std::make_unique<RunData>(*std::move(data));
  parts_.spans = std::make_unique<parallel::CommSpans>();
  engine::EngineConfig config = engine::EngineConfigFromJob(job, args_.groups->axes());
  config.tensor_copies = args_.tensor_copies;
  ASSIGN_OR_RETURN(engine::EnginePlan plan,
                   engine::EnginePlan::Create(
                       {.config = std::move(config),
                        .backend = args_.backend,
                        .groups = args_.groups,
                        .clock = args_.clock,
                        .memory_limit_bytes = args_.memory_limit_bytes,
                        .spans = args_.spans != nullptr ? args_.spans : parts_.spans.get(),
                        .end_of_step = args_.end_of_step}));
  plan_.emplace(std::move(plan));
  return OkStatus();
}

StatusOr<tuning::TuningTables> RunSetup::StoredChoices() const {
  if (!start_.load) return tuning::TuningTables{};
  ASSIGN_OR_RETURN(const checkpoint::Manifest manifest,
                   checkpoint::ReadManifest(start_.load_directory, *start_.load,
                                            spec::BelowRoot(args_.checkpoint_root)));
  const auto fact = manifest.facts.find(tuning::kTuningFact);
  if (fact == manifest.facts.end()) return tuning::TuningTables{};
  StatusOr<tuning::TuningTables> tables = tuning::ParseTuningTables(fact->second);
  if (tables.ok()) return tables;
  log::Warn("the checkpoint's tuning cannot be read: timed anew, equal to rounding, not to the bit",
            {{"why", base::Message(tables.status())}});
  return tuning::TuningTables{};
}

Status RunSetup::SettleChoices(checkpoint::Exchange* exchange) {
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
                                         .progress = [this, timed = int64_t{0}]() mutable {
                                           args_.observer->OnProgress(0);
                                           args_.observer->OnActivity(
                                               {.kind = ActivityKind::kTuning, .done = ++timed});
                                         }}));
  args_.observer->OnActivityEnd(ActivityKind::kTuning);
  tuning_ = std::move(settled.tables);
  return OkStatus();
}

Status RunSetup::MakeEngine() {
  if (!plan_.has_value()) return base::Internal("no engine was planned");
  ASSIGN_OR_RETURN(parts_.engine, engine::Engine::Create(*std::move(plan_)));
  ASSIGN_OR_RETURN(parts_.texts,
                   TextWriter::Create({.job = args_.job,
                                       .data_root = args_.data_root,
                                       .tokenizer = parts_.data->tokenizer,
                                       .engine = parts_.engine.get(),
                                       .groups = args_.groups,
                                       .backend = args_.backend,
                                       .memory_limit_bytes = args_.memory_limit_bytes}));
  return OkStatus();
}

Status RunSetup::CheckExitAtIter() const {
  const auto& training = args_.job->training();
  const int64_t start = parts_.cursor.start();
  if (!training.has_exit_at_iter() || training.exit_at_iter() > start || goes_on_own_ ||
      start >= parts_.course.steps) {
    return OkStatus();
  }
  return base::InvalidArgument(
      "training.exit_at_iter {} is done already: the run goes on from step {} of {}; give a later "
      "one, leave it out, or use training.exit_interval, which ends after each multiple",
      training.exit_at_iter(), start, parts_.course.steps);
}

StartArgs RunSetup::ArgsOfStart() const {
  return {.job = args_.job,
          .checkpoint_root = args_.checkpoint_root,
          .make_root = args_.make_checkpoint_root,
          .job_uid = args_.job_uid,
          .epoch = args_.epoch,
          .ended_job_uids = args_.ended_job_uids,
          .base = args_.base ? &*args_.base : nullptr,
          .restart = args_.restart};
}

Status RunSetup::LoadIntact(checkpoint::Exchange* exchange) {
  StartArgs args = ArgsOfStart();
  std::optional<checkpoint::CheckpointId> read_twice;
  for (;;) {
    const base::MonotonicTime begin = args_.clock->Now();
    const Status mine = LoadOrInitialize(exchange);
    const Status all = exchange->Agree(mine);
    if (all.ok()) {
      const std::chrono::duration<double> took = args_.clock->Now() - begin;
      if (start_.load)
        log::Info("read on all ranks", {{"step", start_.load->step}, {"seconds", took.count()}});
      return OkStatus();
    }
    if (!absl::IsDataLoss(all) || !start_.passes_over())
      return mine.ok() ? failure::WithCause(all, failure::Cause::kNetwork) : mine;
    // Nobody knows how far the run has come: what a file server shows late is no damage.
    if (start_.own && read_twice != start_.load) {
      read_twice = start_.load;
      log::Warn("a checkpoint seems damaged: it is read once more", {{"why", base::Message(all)}});
      continue;
    }
    const std::string damage = absl::IsDataLoss(mine) ? base::Message(mine) : "";
    ASSIGN_OR_RETURN(start_, FindIntactStart(&args, start_, damage, exchange));
  }
}

Status RunSetup::LoadOrInitialize(checkpoint::Exchange* exchange) {
  if (start_.load) {
    const Status loaded = Load(*start_.load);
    args_.observer->OnActivityEnd(ActivityKind::kLoading);
    RETURN_IF_ERROR(loaded);
  } else {
    parts_.engine->Initialize(args_.job->training().seed());
    if (!start_.foreign.empty()) {
      const Status loaded = LoadForeign(exchange);
      args_.observer->OnActivityEnd(ActivityKind::kLoading);
      RETURN_IF_ERROR(loaded);
    }
  }
  parts_.loss_scale = parts_.engine->ReadScalars().loss_scale;
  return OpenLoader();
}

StatusOr<data::IndexRecord> RunSetup::TakeCourse(const spec::Course& course) {
  if (!(course == parts_.course)) {
    StatusOr<RunData> opened = OpenRunData({.job = args_.job,
                                            .course = course,
                                            .data_root = args_.data_root,
                                            .cache_root = args_.cache_root});
    // Of the data: no other checkpoint cures it.
    if (absl::IsDataLoss(opened.status()))
      return NameMissingData(base::NotFound("{}", base::Message(opened.status())));
    ASSIGN_OR_RETURN(*parts_.data, std::move(opened));
    parts_.course = course;
  }
  return parts_.data->train->record();
}

Status RunSetup::Load(const checkpoint::CheckpointId& id) {
  args_.observer->OnActivity({.kind = ActivityKind::kLoading, .step = id.step});
  const LoadStateArgs load{
      .job = args_.job,
      .directory = start_.load_directory,
      .id = id,
      .data = [this](const spec::Course& course) { return TakeCourse(course); },
      .engine = parts_.engine.get(),
      .progress =
          [this, step = id.step, done = int64_t{0}](int64_t bytes) mutable {
            args_.observer->OnProgress(0);
            args_.observer->OnActivity(
                {.kind = ActivityKind::kLoading, .step = step, .done = done += bytes});
          },
      .open = spec::BelowRoot(args_.checkpoint_root)};
  if (start_.weights) return LoadWeights(load).status();
  ASSIGN_OR_RETURN(const checkpoint::Manifest manifest, LoadState(load));
  parts_.cursor = StepCursor(manifest.step);
  goes_on_own_ = !args_.job_uid.empty() && manifest.job_uid == args_.job_uid;
  if (!is_rank_0()) return OkStatus();
  if (!args_.job_uid.empty() && manifest.job_uid != args_.job_uid) {
    log::Info("goes on from a checkpoint of another job",
              {{"step", manifest.step}, {"job", manifest.job_name}, {"uid", manifest.job_uid}});
  }
  ASSIGN_OR_RETURN(loaded_,
                   RecordOf(start_.load_directory, manifest, args_.job->model().seq_length()));
  changed_ = ChangedFields(manifest, *args_.job);
  // Of a run that loads from elsewhere the record is not used.
  loaded_->root_id = start_.root_id;
  return OkStatus();
}

Status RunSetup::LoadForeign(checkpoint::Exchange* exchange) {
  args_.observer->OnActivity({.kind = ActivityKind::kLoading});
  const auto progress = [this, done = int64_t{0}](int64_t bytes) mutable {
    args_.observer->OnProgress(0);
    args_.observer->OnActivity({.kind = ActivityKind::kLoading, .done = done += bytes});
  };
  return LoadForeignWeights({.job = args_.job,
                             .directory = start_.foreign,
                             .engine = parts_.engine.get(),
                             .progress = progress,
                             .open = spec::BelowRoot(args_.checkpoint_root)},
                            start_.foreign_kind, exchange);
}

Status RunSetup::OpenLoader() {
  const megatrain::v1::JobSpec& job = *args_.job;
  ASSIGN_OR_RETURN(
      parts_.loader,
      data::Loader::Create({.dataset = parts_.data->train,
                            .first_sample = parts_.course.ramp.SamplesAfter(parts_.cursor.start()),
                            .end_sample = parts_.course.samples,
                            .micro_batch_size = job.training().micro_batch_size(),
                            .dp_rank = args_.groups->axes().IndexIn(layout::kDataAxes),
                            .dp_size = args_.groups->axes().SizeOf(layout::kDataAxes),
                            .parts = parts_.engine->microbatch_parts(),
                            .token_bytes = parts_.data->token_bytes,
                            .prefetch = static_cast<int>(job.data().prefetch()),
                            .threads = static_cast<int>(job.data().loader_threads())}));
  return OkStatus();
}

// From another directory it has saved nothing in its own yet.
bool RunSetup::IsComplete() const {
  return (start_.own || start_.bound) && start_.load && !start_.weights &&
         !start_.directory.empty() && start_.load_directory == start_.directory &&
         parts_.cursor.start() >= parts_.course.steps;
}

checkpoint::Manifest RunSetup::ManifestTemplate() const {
  checkpoint::Manifest manifest;
  manifest.job_uid = args_.job_uid;
  manifest.job_epoch = args_.epoch;
  manifest.job_name = args_.job->name();
  manifest.run = run_.record.id;
  if (start_.load && !start_.weights) {
    manifest.parent_step = start_.load->step;
    manifest.parent_epoch = start_.load->epoch;
  }
  manifest.spec_json = spec::ToJson(*args_.job);
  manifest.facts["device"] = args_.backend->device().Describe();
  if (!tuning_.empty()) manifest.facts[tuning::kTuningFact] = tuning::ToJson(tuning_);
  const std::string routes = parts_.engine->TensorRoutesText();
  if (!routes.empty()) manifest.facts["tensor_routes"] = routes;
  manifest.facts["threads_per_rank"] = std::to_string(args_.job->placement().threads_per_rank());
  for (const data::IndexRecord& record : parts_.data->Records()) PutIndexRecord(record, &manifest);
  const auto& tokenizer = parts_.data->tokenizer;
  if (tokenizer && !tokenizer->digest.empty())
    checkpoint::PutTokenizer({.type = tokenizer->type, .digest = tokenizer->digest}, &manifest);
  const std::string sizes = spec::SizesText(parts_.course);
  if (sizes != spec::SizesText(spec::CourseOf(*args_.job))) manifest.facts[kSizesFact] = sizes;
  return manifest;
}

void RunSetup::MakeTexts() {
  const megatrain::v1::JobSpec& job = *args_.job;
  const auto& eval = job.training().eval();
  if (eval.prompts_size() > 0) {
    parts_.prompts =
        std::make_unique<PromptSamples>(job, parts_.engine.get(), args_.groups, parts_.texts.get());
  }
  if (eval.decode_tokens() > 0) {
    parts_.asked_texts =
        std::make_unique<AskedTexts>(AskedTexts::Args{.engine = parts_.engine.get(),
                                                      .groups = args_.groups,
                                                      .writer = parts_.texts.get(),
                                                      .clock = args_.clock,
                                                      .patience = spec::SaveTimeout(job)});
  }
}

void RunSetup::MakeParts() {
  const megatrain::v1::JobSpec& job = *args_.job;
  const auto& eval = job.training().eval();
  const auto batch = static_cast<double>(job.training().global_batch_size());
  parts_.reporter = std::make_unique<StepReporter>(StepReporter::Args{
      .engine = parts_.engine.get(),
      .groups = args_.groups,
      .observer = args_.observer,
      .clock = args_.clock,
      .config = {.model_flops_per_sample = spec::ModelFlopsPerStep(job) / batch,
                 .model_flops_full_per_sample = spec::FullFlopsPerStep(job) / batch,
                 .world_size = spec::WorldSize(job),
                 .epoch = args_.epoch > 0 ? args_.epoch : start_.epoch},
      .seq_length = job.model().seq_length()});
  MakeTexts();
  // A run that begins with another one's weights has saved nothing, wherever they lay.
  StartPoint saved_before = start_;
  if (start_.weights) saved_before.load.reset();
  parts_.checkpointer = std::make_unique<Checkpointer>(Checkpointer::Args{
      .job = parts_.job.get(),
      .start = std::move(saved_before),
      .loaded = loaded_,
      .manifest = ManifestTemplate(),
      .run = run_.record,
      .engine = parts_.engine.get(),
      .group = args_.groups->world(),
      .background_group = args_.groups->checkpoint(),
      .consumed_by_member = [train = parts_.data->train](
                                int64_t samples) { return train->ConsumedByMember(samples); },
      .data_check =
          std::make_shared<DataCheck>(DataCheck::Args{.data = parts_.data.get(),
                                                      .group = args_.groups->world(),
                                                      .stream = &parts_.engine->stream(),
                                                      .patience = spec::SaveTimeout(job)}),
      .stalled = [reporter = parts_.reporter.get()] { return reporter->SaveSeconds(); },
      .clock = args_.clock,
      .observer = args_.observer,
      .fence_repair = {args_.checkpoint_root, args_.checkpoint_root_id, args_.epoch_open},
      .kept_steps = args_.kept_steps,
      .saves_rest = args_.saves_rest,
      .failpoint = args_.checkpoint_failpoint});
  parts_.evaluator = std::make_unique<Evaluator>(
      Evaluator::Args{.engine = parts_.engine.get(),
                      .data = parts_.data.get(),
                      .clock = args_.clock,
                      .observer = args_.observer,
                      .every_iters = eval.every_iters(),
                      .samples_per_eval = eval.iters() * job.training().global_batch_size(),
                      .fixed_windows = spec::HasFixedWindows(job),
                      .micro_batch_size = job.training().micro_batch_size(),
                      .loader_threads = static_cast<int>(job.data().loader_threads()),
                      .prefetch = static_cast<int>(job.data().prefetch()),
                      .prompts = parts_.prompts.get()});
}

void RunSetup::AnnounceReady() const {
  log::Info("ready", {{"epoch", start_.epoch},
                      {"resumed_from_step", parts_.cursor.start()},
                      {"total_steps", parts_.course.steps},
                      {"parameters", spec::ParameterCount(args_.job->model())},
                      {"memory_bytes", memory::Total(parts_.reporter->memory_bytes())}});
  const std::string attention = args_.backend->AttentionKernels();
  if (!attention.empty()) log::Info("attention", {{"kernels", attention}});
  if (is_rank_0()) {
    args_.observer->OnRunInfo(
        {.total_steps = parts_.course.steps,
         .resumed_from_step = parts_.cursor.start(),
         .checkpoint_path = start_.directory,
         .parameters = spec::ParameterCount(args_.job->model()),
         .epoch = start_.epoch,
         .damaged_checkpoints = start_.damaged,
         .run = run_.record,
         .run_begins = run_.begins,
         .other_runs = OtherRunsOf(start_.directory, run_.record.id),
         .outlook = OutlookOf(*parts_.data, *args_.job, parts_.course, parts_.cursor.start()),
         .changed = changed_});
  }
  args_.observer->OnState(TrainState::kReady, parts_.cursor.start());
}

}  // namespace mt::train
