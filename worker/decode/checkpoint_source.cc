// A checkpoint that is pruned loses its manifest first, so what it lacks then tells it from a
// damaged one.
#include "worker/decode/checkpoint_source.h"

#include <utility>
#include <vector>

#include "common/base/files.h"
#include "common/spec/parse.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/label.h"
#include "worker/checkpoint/inspect/place.h"
#include "worker/checkpoint/loader.h"

namespace mt::decode {
namespace {

using checkpoint::CheckpointId;
using megatrain::v1::JobSpec;

std::string FolderOf(const std::string& directory, const CheckpointId& id) {
  return base::JoinPath(directory, checkpoint::FolderName(id));
}

bool WasRemoved(const std::string& directory, const CheckpointId& id) {
  return !base::Exists(base::JoinPath(FolderOf(directory, id), checkpoint::kManifestName));
}

// The job as the run had it.
StatusOr<std::shared_ptr<const JobSpec>> JobOf(const checkpoint::Manifest& manifest) {
  auto job = std::make_shared<JobSpec>();
  Status read = spec::ToStatus(spec::LoadJob(manifest.spec_json, {}, {.stored = true}, job.get()));
  if (read.ok()) {
    const bool gpu = job->placement().device() == megatrain::v1::Placement::DEVICE_GPU;
    read = spec::ToStatus(
        spec::ResolveForSlots({.gpu = gpu, .cores_per_node = 1, .slots_per_node = 1}, job.get()));
  }
  if (read.ok()) return job;
  return base::FailedPrecondition(
      "the manifest of step {} has a job that this program does not know: {}", manifest.step,
      base::Message(read));
}

// All of a parameter, to its place.
checkpoint::SliceToLoad SliceOf(const std::string& parameter, const kernels::Tensor& to) {
  std::vector<int64_t> shape;
  shape.reserve(static_cast<size_t>(to.shape.rank()));
  for (int d = 0; d < to.shape.rank(); ++d) shape.push_back(to.shape[d]);
  return {.key = "weights/" + parameter,
          .dtype = to.dtype,
          .global_shape = shape,
          .offset = std::vector<int64_t>(shape.size()),
          .shape = shape,
          .data = to.data};
}

Status Load(const LoadWeightsArgs& args, std::vector<checkpoint::SliceToLoad> slices) {
  return checkpoint::LoadTensors({.directory = args.directory,
                                  .id = {args.saved->manifest.step, args.saved->manifest.epoch},
                                  .manifest = &args.saved->manifest,
                                  .slices = std::move(slices),
                                  .open = args.open});
}

// Rounds and brings values to a weight, in pieces. Returns when they are there.
void PutRounded(const LoadWeightsArgs& args, const std::vector<float>& values,
                const kernels::Tensor& to) {
  constexpr int64_t kPiece = int64_t{4} << 20;  // elements
  kernels::Device& device = args.backend->device();
  const auto count = std::ssize(values);
  const auto piece = device.Allocate(std::min(kPiece, count) * int64_t{sizeof(float)},
                                     kernels::MemoryKind::kDevice);
  for (int64_t at = 0; at < count; at += kPiece) {
    const int64_t n = std::min(kPiece, count - at);
    const kernels::Tensor from{piece->data(), kernels::DType::kF32, {n}};
    device.Copy(*args.stream, from.data, values.data() + at, from.Bytes());
    const kernels::Tensor part{static_cast<char*>(to.data) + at * SizeOf(to.dtype), to.dtype, {n}};
    args.backend->vector().Cast(*args.stream, part, from);
  }
  args.stream->Synchronize();
}

}  // namespace

StatusOr<CheckpointChoice> ChooseCheckpoint(const std::string& path, std::optional<int64_t> step,
                                            const std::string& tag) {
  ASSIGN_OR_RETURN(const checkpoint::Place place, checkpoint::FindPlace(path));
  CheckpointChoice choice{.directory = place.directory, .id = place.id};
  if (!step && tag.empty()) return choice;
  if (place.id) {
    return base::InvalidArgument(
        "{} is one checkpoint: a step or a tag chooses in a directory of them", path);
  }
  if (step) {
    ASSIGN_OR_RETURN(choice.id, checkpoint::FindByName(place.directory, std::to_string(*step)));
  } else {
    ASSIGN_OR_RETURN(choice.id, checkpoint::FindByTag(place.directory, tag));
  }
  return choice;
}

Status UseCheckpoint(const CheckpointChoice& choice,
                     const std::function<Status(const CheckpointId&)>& use) {
  for (;;) {
    std::optional<CheckpointId> id = choice.id;
    if (!id) {
      ASSIGN_OR_RETURN(id, checkpoint::FindNewest(choice.directory));
      if (!id) return base::NotFound("{} has no complete checkpoint", choice.directory);
    }
    Status used = use(*id);
    if (used.ok() || !WasRemoved(choice.directory, *id)) return used;
    if (choice.id) {
      return base::NotFound("checkpoint {} was removed while it was read",
                            FolderOf(choice.directory, *id));
    }
  }
}

StatusOr<SavedModel> ReadSavedModel(const std::string& directory, const CheckpointId& id) {
  SavedModel saved{.folder = FolderOf(directory, id)};
  ASSIGN_OR_RETURN(saved.manifest, checkpoint::ReadManifest(directory, id));
  ASSIGN_OR_RETURN(saved.job, JobOf(saved.manifest));
  saved.config = model::ConfigFromJob(*saved.job);
  return saved;
}

Status LoadWeights(const LoadWeightsArgs& args) {
  const DecodeWeights& weights = *args.weights;
  const bool on_host = args.backend->device().kind() == kernels::DeviceKind::kCpu;
  std::vector<checkpoint::SliceToLoad> slices;
  std::vector<float> wide;
  for (const params::ParamSpec& spec : weights.registry().params()) {
    const kernels::Tensor to = weights.Weight(spec.name);
    checkpoint::SliceToLoad slice = SliceOf(spec.name, to);
    if (on_host && SizeOf(to.dtype) > 2) {
      slices.push_back(std::move(slice));
      continue;
    }
    wide.resize(static_cast<size_t>(to.NumElements()));
    slice.dtype = kernels::DType::kF32;
    slice.data = wide.data();
    RETURN_IF_ERROR(Load(args, {std::move(slice)}));
    PutRounded(args, wide, to);
  }
  return slices.empty() ? OkStatus() : Load(args, std::move(slices));
}

}  // namespace mt::decode
