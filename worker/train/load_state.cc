// What the job says otherwise than the checkpoint is applied or refused, never silently ignored.
#include "worker/train/load_state.h"

#include <ctime>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/spec/batch_ramp.h"
#include "common/spec/derived.h"
#include "common/spec/parse.h"
#include "common/spec/print.h"
#include "common/spec/update.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"
#include "worker/checkpoint/exchange.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/loader.h"
#include "worker/data/split.h"
#include "worker/failure/failure.h"
#include "worker/hf/load_slices.h"
#include "worker/hf/model_files.h"
#include "worker/hf/parameter_source.h"
#include "worker/llmc/model_file.h"
#include "worker/optim/schedule.h"
#include "worker/train/run_state.h"

namespace mt::train {
namespace {

using checkpoint::Manifest;
using megatrain::v1::JobSpec;
using nlohmann::json;

// What cannot be read is a fault of the storage, unless it is the job's: `of_job`, or a link that
// leaves the root.
Status OfStorage(const Status& loaded, bool of_job) {
  if (of_job || absl::IsPermissionDenied(loaded)) return loaded;
  return failure::WithCause(loaded, failure::Cause::kStorage);
}

// One reads and checks about 2 GB/s.
constexpr int kLoadThreadsOnGpu = 8;

// The manifest, which was there when the run looked for it.
StatusOr<Manifest> ReadFound(const LoadStateArgs& args) {
  StatusOr<Manifest> read = checkpoint::ReadManifest(args.directory, args.id, args.open);
  RETURN_IF_ERROR(OfStorage(read.status(), absl::IsFailedPrecondition(read.status())));
  return read;
}

Status LoadSlices(const LoadStateArgs& args, const Manifest& manifest,
                  std::vector<checkpoint::SliceToLoad> slices) {
  std::function<void(void*, const void*, int64_t)> put;
  auto threads = static_cast<int>(args.job->placement().threads_per_rank());
  if (args.engine->device().kind() != kernels::DeviceKind::kCpu) {
    threads = kLoadThreadsOnGpu;
    put = [staging = args.engine->staging()](void* to, const void* from, int64_t bytes) {
      staging->Write(to, from, bytes);
    };
  }
  const Status tensors = checkpoint::LoadTensors({.directory = args.directory,
                                                  .id = args.id,
                                                  .manifest = &manifest,
                                                  .slices = std::move(slices),
                                                  .threads = threads,
                                                  .put = put,
                                                  .progress = args.progress,
                                                  .open = args.open});
  // A tensor that is missing, or another one.
  const bool other = absl::IsNotFound(tensors) || absl::IsFailedPrecondition(tensors);
  return OfStorage(tensors, other);
}

// Whether the checkpoint has a tensor of this kind, such as "exp_avg/".
bool HasKind(const Manifest& manifest, const std::string& kind) {
  const auto found = manifest.tensors.lower_bound(kind);
  return found != manifest.tensors.end() && found->first.starts_with(kind);
}

// The slices to load, without the moments that the checkpoint has none of, because its optimizer
// was another one: those begin at zero. *fresh names their kinds.
std::vector<checkpoint::SliceToLoad> StoredSlices(const params::ParamStore& store,
                                                  const Manifest& manifest,
                                                  std::set<std::string>* fresh) {
  std::vector<checkpoint::SliceToLoad> slices = SlicesToLoad(store);
  std::erase_if(slices, [&](const checkpoint::SliceToLoad& slice) {
    const std::string kind = slice.key.substr(0, slice.key.find('/') + 1);
    if (kind == "weights/" || HasKind(manifest, kind)) return false;
    fresh->insert(kind.substr(0, kind.size() - 1));
    return true;
  });
  return slices;
}

// A table of positions has as many rows as the job says, or as its sequences are long: the field to
// set where the checkpoint's has others.
Status NamePositions(const Status& loaded, const Manifest& manifest, const JobSpec& job) {
  const auto table = manifest.tensors.find("weights/embedding.position.weight");
  if (!absl::IsFailedPrecondition(loaded) || table == manifest.tensors.end() ||
      job.model().position() != megatrain::v1::Model::POSITION_LEARNED ||
      table->second.shape.empty() || table->second.shape[0] == spec::MaxPositions(job.model()))
    return loaded;
  const int64_t rows = table->second.shape[0];
  if (job.model().seq_length() <= rows) {
    return base::FailedPrecondition(
        "{}; its table of positions has {} rows: set model.max_positions: {}",
        base::Message(loaded), rows, rows);
  }
  return base::FailedPrecondition(
      "{}; its table of positions has {} rows: model.seq_length {} is more, and can be {} at most, "
      "with model.max_positions: {}",
      base::Message(loaded), rows, job.model().seq_length(), rows, rows);
}

std::string PrecisionOf(const Manifest& manifest) {
  const json spec = json::parse(manifest.spec_json, nullptr, false);
  const json::json_pointer where("/training/precision");
  return spec.is_object() && spec.contains(where) && spec.at(where).is_string()
             ? spec.at(where).get<std::string>()
             : "";
}

// What of the scalars the job says otherwise than the checkpoint: a static loss scale is the job's,
// and one of another precision begins anew.
void ApplyLossScale(const Manifest& manifest, const JobSpec& job, kernels::StepScalars* scalars) {
  const kernels::StepConstants constants = optim::ConstantsFromJob(job);
  const json now = json::parse(spec::ToJson(job), nullptr, false);
  const bool same = PrecisionOf(manifest) == now.at("training").at("precision").get<std::string>();
  if (same && constants.loss_scale.kind == kernels::LossScaleKind::kDynamic) return;
  const kernels::StepScalars first = kernels::InitialStepScalars(constants);
  if (scalars->loss_scale != first.loss_scale) {
    log::Warn("the loss scale begins anew",
              {{"checkpoint", scalars->loss_scale}, {"now", first.loss_scale}});
  }
  scalars->loss_scale = first.loss_scale;
  scalars->clean_steps = first.clean_steps;
  scalars->hysteresis = first.hysteresis;
}

// Says how the curve goes on where the batches to come are others than those before.
void SayCourse(const spec::Course& course, const JobSpec& job, const kernels::StepScalars& scalars,
               int64_t step) {
  const kernels::StepConstants constants = optim::ConstantsFromJob(job, course);
  log::Warn("goes on with other batch sizes: no sample is left out or comes twice",
            {{"next_sample", scalars.consumed_samples},
             {"batch_before", course.ramp.BatchOf(course.ramp.SamplesAfter(step - 1))},
             {"batch", course.ramp.BatchOf(scalars.consumed_samples)},
             {"samples", course.samples},
             {"steps", course.steps},
             {"learning_rate_before", scalars.lr},
             {"learning_rate", kernels::LearningRate(constants, scalars.schedule_samples)}});
}

// What only somebody else writes into a manifest: a job without its batch sizes.
Status CheckBatchSizes(const Manifest& manifest, const JobSpec& saved) {
  constexpr std::string_view kInstead =
      "nothing can go on from it; load_kind: weights begins anew with its weights";
  const auto& training = saved.training();
  if (training.has_batch_ramp()) {
    const Status ramp = spec::BatchRamp::Parse({.text = training.batch_ramp(),
                                                .global_batch = training.global_batch_size(),
                                                .seq_length = saved.model().seq_length()})
                            .status();
    if (ramp.ok()) return OkStatus();
    return base::FailedPrecondition(
        "the manifest of step {}: its job's training.batch_ramp: {}: {}", manifest.step,
        base::Message(ramp), kInstead);
  }
  if (training.global_batch_size() >= 1) return OkStatus();
  return base::FailedPrecondition(
      "the manifest of step {}: its job has no training.global_batch_size: {}", manifest.step,
      kInstead);
}

StatusOr<spec::Course> CourseFrom(const Manifest& manifest, const JobSpec& job, int64_t samples,
                                  const kernels::StepScalars& scalars) {
  JobSpec saved;
  // Fields that this program does not know are none of a course.
  (void)spec::ParseJob(manifest.spec_json, {}, &saved);
  RETURN_IF_ERROR(CheckBatchSizes(manifest, saved));
  const auto sizes = manifest.facts.find(kSizesFact);
  ASSIGN_OR_RETURN(
      spec::Course course,
      spec::ContinueCourse(job, {.job = &saved,
                                 .sizes = sizes == manifest.facts.end() ? "" : sizes->second,
                                 .samples = samples,
                                 .step = manifest.step,
                                 .consumed_samples = scalars.consumed_samples}));
  const bool goes_on = sizes == manifest.facts.end()
                           ? course.ramp.phases() == spec::RampOf(saved).phases()
                           : spec::SizesText(course) == sizes->second;
  if (!goes_on) SayCourse(course, job, scalars, manifest.step);
  return course;
}

// Another program's files are the job's, but for what the storage cannot read.
Status OfForeign(const Status& found) {
  return OfStorage(found, absl::IsNotFound(found) || absl::IsInvalidArgument(found) ||
                              absl::IsFailedPrecondition(found));
}

// What another program has written.
struct Foreign {
  std::unique_ptr<hf::ParameterSource> source;
  std::vector<std::string> notes;
};

Status CheckModel(const LoadStateArgs& args, const megatrain::v1::Model& model,
                  std::string_view says) {
  const std::vector<std::string> differences = hf::ModelDifferences(model, args.job->model(), says);
  if (differences.empty()) return OkStatus();
  return base::FailedPrecondition(
      "checkpoint.load: the job's model is not that of {}: {}; mtctl checkpoint import "
      "--job-file writes the fields of one that fits",
      args.directory, fmt::join(differences, "; "));
}

// The files, which say the job's model.
StatusOr<Foreign> OpenForeign(const LoadStateArgs& args, std::string_view load_kind) {
  if (load_kind == "llmc") {
    StatusOr<llmc::ModelFile> file = llmc::ModelFile::Open(args.directory, args.open);
    RETURN_IF_ERROR(OfForeign(file.status()));
    RETURN_IF_ERROR(CheckModel(args, file->model(), "the header of llm.c"));
    std::vector<std::string> notes = file->notes();
    return Foreign{.source = std::make_unique<llmc::ModelFile>(*std::move(file)),
                   .notes = std::move(notes)};
  }
  CHECK(load_kind == "hf") << load_kind;
  StatusOr<hf::ModelFiles> files = hf::ModelFiles::Open(args.directory, args.open);
  RETURN_IF_ERROR(OfForeign(files.status()));
  RETURN_IF_ERROR(CheckModel(args, *files->config().model, "config.json"));
  std::vector<std::string> notes = files->notes();
  return Foreign{.source = std::make_unique<hf::ModelFiles>(*std::move(files)),
                 .notes = std::move(notes)};
}

// What the files hold now; `so_far`: this rank's error before.
StatusOr<std::string> FingerprintOf(const StatusOr<Foreign>& files, const Status& so_far) {
  RETURN_IF_ERROR(so_far);
  StatusOr<std::string> print = files->source->Fingerprint();
  RETURN_IF_ERROR(OfStorage(print.status(), false));
  return print;
}

// Collective: what all ranks have found alike; else an error on all of them, this rank's first.
StatusOr<std::string> SameOnAllRanks(const StatusOr<std::string>& mine,
                                     const std::string& directory, checkpoint::Exchange* exchange) {
  const Status all = exchange->Agree(mine.status());
  RETURN_IF_ERROR(mine.status());
  RETURN_IF_ERROR(failure::WithCause(all, failure::Cause::kNetwork));
  ASSIGN_OR_RETURN(const std::vector<std::string> texts, exchange->AllGather(*mine));
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    return OfStorage(
        base::FailedPrecondition(
            "checkpoint.load: ranks 0 and {} do not find the same model in {}: it was replaced as "
            "the run began, or their machines have different copies; start the job again when all "
            "have one model",
            rank, directory),
        false);
  }
  return texts[0];
}

Status LoadMasters(const LoadStateArgs& args, const hf::ParameterSource& source) {
  std::vector<checkpoint::SliceToLoad> slices = SlicesToLoad(args.engine->store());
  std::erase_if(slices, [](const checkpoint::SliceToLoad& slice) {
    return !slice.key.starts_with("weights/");
  });
  std::function<void(void*, const void*, int64_t)> put;
  if (args.engine->device().kind() != kernels::DeviceKind::kCpu) {
    put = [staging = args.engine->staging()](void* to, const void* from, int64_t bytes) {
      staging->Write(to, from, bytes);
    };
  }
  const Status loaded = hf::LoadSlices(
      {.files = &source, .slices = std::move(slices), .put = put, .progress = args.progress});
  return OfStorage(loaded, absl::IsNotFound(loaded) || absl::IsFailedPrecondition(loaded));
}

}  // namespace

StatusOr<checkpoint::Manifest> LoadState(const LoadStateArgs& args) {
  ASSIGN_OR_RETURN(checkpoint::Manifest manifest, ReadFound(args));
  RETURN_IF_ERROR(checkpoint::CheckSameRun(manifest, spec::ToJson(*args.job)));
  ASSIGN_OR_RETURN(const data::IndexRecord saved,
                   GetIndexRecord(manifest, std::string(Name(data::SplitName::kTrain))));
  ASSIGN_OR_RETURN(kernels::StepScalars scalars, GetScalars(manifest));
  ASSIGN_OR_RETURN(const spec::Course course,
                   CourseFrom(manifest, *args.job, saved.samples_asked, scalars));
  ASSIGN_OR_RETURN(const data::IndexRecord opened, args.data(course));
  RETURN_IF_ERROR(data::CheckSameOrder(
      saved, opened,
      {.files = args.job->data().allow_changed(), .blend = args.job->data().allow_new_blend()}));
  std::set<std::string> fresh;
  RETURN_IF_ERROR(LoadSlices(args, manifest, StoredSlices(args.engine->store(), manifest, &fresh)));
  if (!fresh.empty()) {
    scalars.adam_step = 0;
    log::Warn("the checkpoint is another optimizer's: moments begin at zero",
              {{"moments", fmt::format("{}", fmt::join(fresh, ", "))}});
  }
  ApplyLossScale(manifest, *args.job, &scalars);
  args.engine->RestoreScalars(scalars);
  args.engine->SetCourse(course, optim::ConstantsFromJob(*args.job, course));
  const std::string device = args.engine->device().Describe();
  const auto saved_device = manifest.facts.find("device");
  if (saved_device != manifest.facts.end() && saved_device->second != device) {
    log::Warn("resumed on another device: equal to rounding, not to the bit",
              {{"checkpoint", saved_device->second}, {"now", device}});
  }
  return manifest;
}

StatusOr<checkpoint::Manifest> LoadWeights(const LoadStateArgs& args) {
  ASSIGN_OR_RETURN(checkpoint::Manifest manifest, ReadFound(args));
  std::vector<checkpoint::SliceToLoad> slices = SlicesToLoad(args.engine->store());
  std::erase_if(slices, [](const checkpoint::SliceToLoad& slice) {
    return !slice.key.starts_with("weights/");
  });
  RETURN_IF_ERROR(
      NamePositions(LoadSlices(args, manifest, std::move(slices)), manifest, *args.job));
  args.engine->RestoreScalars(kernels::InitialStepScalars(optim::ConstantsFromJob(*args.job)));
  log::Info("begins with the weights of a checkpoint",
            {{"job", manifest.job_name}, {"step", manifest.step}});
  return manifest;
}

Status LoadForeignWeights(const LoadStateArgs& args, std::string_view load_kind,
                          checkpoint::Exchange* exchange) {
  // Ranks open and read at their own times. All hold the same files where all find the same now,
  // and once more when the last one has read: what was written over meanwhile shows then.
  const StatusOr<Foreign> files = OpenForeign(args, load_kind);
  ASSIGN_OR_RETURN(const std::string opened,
                   SameOnAllRanks(FingerprintOf(files, files.status()), args.directory, exchange));
  const Status loaded = LoadMasters(args, *files->source);
  ASSIGN_OR_RETURN(const std::string read,
                   SameOnAllRanks(FingerprintOf(files, loaded), args.directory, exchange));
  if (read != opened) {
    return OfStorage(base::FailedPrecondition(
                         "checkpoint.load: {} was written over while it was read: start the job "
                         "again when it stays as it is",
                         args.directory),
                     false);
  }
  if (load_kind == "llmc") {
    log::Info("begins with the weights of a model file of llm.c", {{"file", args.directory}});
    for (const std::string& note : files->notes)
      log::Warn("of the model file of llm.c", {{"what", note}});
    return OkStatus();
  }
  log::Info("begins with the weights of a Hugging Face model", {{"folder", args.directory}});
  for (const std::string& note : files->notes)
    log::Warn("of the Hugging Face model", {{"what", note}});
  return OkStatus();
}

std::vector<std::string> ChangedFields(const Manifest& manifest, const JobSpec& job) {
  JobSpec parsed;
  (void)spec::ParseJob(manifest.spec_json, {}, &parsed);
  // A job of an earlier version has what it left open.
  JobSpec saved = parsed;
  if (!spec::CompleteJob({.stored = true}, &saved).empty()) saved = std::move(parsed);
  std::vector<std::string> texts;
  for (const spec::FieldChange& change : spec::DifferencesOfJobs(saved, job))
    texts.push_back(spec::ChangeText(change));
  return texts;
}

StatusOr<CheckpointRecord> RecordOf(const std::string& directory, const Manifest& manifest,
                                    int64_t seq_length) {
  const std::string path =
      base::JoinPath(directory, checkpoint::FolderName({manifest.step, manifest.epoch}));
  const std::string file = base::JoinPath(path, checkpoint::kManifestName);
  ASSIGN_OR_RETURN(const std::string text, base::ReadFile(file));
  CheckpointRecord record{.step = manifest.step, .epoch = manifest.epoch, .path = path};
  record.bytes = static_cast<int64_t>(text.size());
  for (const std::string& name : checkpoint::FilesOf(manifest)) {
    ASSIGN_OR_RETURN(const int64_t bytes, base::FileSize(base::JoinPath(path, name)));
    record.bytes += bytes;
  }
  ASSIGN_OR_RETURN(const kernels::StepScalars scalars, GetScalars(manifest));
  record.consumed_samples = scalars.consumed_samples;
  record.tokens = scalars.consumed_samples * seq_length;
  record.digest = checkpoint::ManifestDigest(text);
  std::tm utc{};
  if (::strptime(manifest.created.c_str(), "%Y-%m-%dT%H:%M:%SZ", &utc) != nullptr) {
    record.time_us = int64_t{::timegm(&utc)} * 1'000'000;
  }
  return record;
}

}  // namespace mt::train
