// What can be refused is refused before the first file: the job, its family, the type, the room.
#include "worker/hf/export.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include "common/base/files.h"
#include "megatrain/v1/job.pb.h"
#include "worker/checkpoint/format/whole_manifest.h"
#include "worker/hf/checkpoint_job.h"
#include "worker/hf/config_write.h"
#include "worker/hf/element_types.h"
#include "worker/hf/new_files.h"
#include "worker/hf/shard_plan.h"
#include "worker/hf/tensor_writer.h"

namespace mt::hf {
namespace {

namespace fs = std::filesystem;
using megatrain::v1::JobSpec;

constexpr std::string_view kConfigName = "config.json";

StatusOr<std::string> TypeOf(const ExportArgs& args, const JobSpec& job) {
  if (args.dtype.empty()) return std::string(TypeThatTrains(job));
  const std::string_view type = TypeOfTorchName(args.dtype);
  if (!type.empty()) return std::string(type);
  return base::InvalidArgument(
      "dtype {}: float32, bfloat16, float16 and float64 are what weights are exported in",
      args.dtype);
}

// The names of a model's files in the folder.
std::vector<std::string> ModelFilesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (IsModelFile(name)) names.push_back(name);
  }
  return names;
}

// That no model is there which is not to be replaced.
Status CheckFree(const ExportArgs& args) {
  if (args.overwrite) return OkStatus();
  const std::vector<std::string> there = ModelFilesIn(args.to);
  if (there.empty() && !base::Exists(base::JoinPath(args.to, kConfigName))) return OkStatus();
  return base::Error(absl::StatusCode::kAlreadyExists,
                     "{} has a model already ({}): name another folder, or --overwrite", args.to,
                     there.empty() ? std::string(kConfigName) : there[0]);
}

Status CheckFolder(const ExportArgs& args, int64_t bytes) {
  RETURN_IF_ERROR(base::MakeDirs(args.to));
  RETURN_IF_ERROR(CheckFree(args));
  ASSIGN_OR_RETURN(const int64_t room, base::FreeBytes(args.to));
  if (room > bytes) return OkStatus();
  return base::Error(absl::StatusCode::kResourceExhausted,
                     "{} has {} bytes free, and the tensors are {}", args.to, room, bytes);
}

// What is left of a model that was there: of the other form, and of shards; and a tokenizer's
// files.
Status RemoveOthers(const ExportArgs& args, const std::vector<std::string>& names) {
  std::vector<std::string> old;
  if (args.overwrite) old = ModelFilesIn(args.to);
  old.insert(old.end(), {"tokenizer.json", "tokenizer_config.json"});
  for (const std::string& name : old) {
    if (std::ranges::find(names, name) == names.end())
      std::remove(base::JoinPath(args.to, name).c_str());
  }
  return base::SyncDir(args.to);
}

// A crash in between may leave files of both: two forms of one model, which readers refuse.
Status GiveNames(const ExportArgs& args, NewFiles* files) {
  RETURN_IF_ERROR(CheckFree(args));  // of shards of other numbers, too
  RETURN_IF_ERROR(files->Commit([&](const std::string& name) {
    return !args.overwrite && (name == kConfigName || IsModelFile(name));
  }));
  return RemoveOthers(args, files->names());
}

std::vector<StreamTensor> StreamTensorsOf(const std::vector<HfTensor>& tensors,
                                          const std::string& type) {
  std::vector<StreamTensor> out;
  out.reserve(tensors.size());
  for (const HfTensor& tensor : tensors) out.push_back({tensor.name, type, tensor.shape});
  return out;
}

// Writes the tensors to their files, in the order of both.
Status WriteShards(const std::vector<ShardFile>& shards, std::span<const HfTensor> tensors,
                   const TensorArgs& args, NewFiles* files) {
  for (const ShardFile& shard : shards) {
    // transformers before 5 refuses files without it.
    ASSIGN_OR_RETURN(const std::unique_ptr<TensorFile> file,
                     TensorFile::Create(files->Add(shard.name), shard.tensors, {{"format", "pt"}}));
    RETURN_IF_ERROR(WriteTensors(args, tensors.first(shard.tensors.size()), file.get()));
    RETURN_IF_ERROR(file->Finish());
    tensors = tensors.subspan(shard.tensors.size());
  }
  return OkStatus();
}

}  // namespace

StatusOr<ExportResult> Export(const ExportArgs& args) {
  ASSIGN_OR_RETURN(const checkpoint::Manifest manifest,
                   checkpoint::ReadWholeManifest(args.from.directory, args.from.id));
  ASSIGN_OR_RETURN(const JobSpec job, JobOfCheckpoint(manifest));
  const megatrain::v1::Model& model = job.model();
  ExportResult result;
  ASSIGN_OR_RETURN(result.family, FamilyOf(model));
  ASSIGN_OR_RETURN(const std::string type, TypeOf(args, job));
  result.dtype = TorchName(type);
  ASSIGN_OR_RETURN(
      const std::string config,
      ConfigText(
          {.model = &model, .family = result.family, .dtype = result.dtype, .eos = args.eos}));
  const std::vector<HfTensor> tensors = TensorsOf(model, result.family);
  const auto shards = PlanShards(StreamTensorsOf(tensors, type), args.max_shard_bytes);
  for (const ShardFile& shard : shards)
    for (const StreamTensor& tensor : shard.tensors) result.bytes += tensor.bytes();
  RETURN_IF_ERROR(CheckFolder(args, result.bytes));

  const std::map<std::string, Shape> parameters = ParametersOf(model);
  int64_t done = 0;
  const TensorArgs writing{.folder = args.from.folder,
                           .manifest = &manifest,
                           .parameters = &parameters,
                           .dtype = type,
                           .one_plus = model.norm_one_plus(),
                           .buffer_bytes = args.buffer_bytes,
                           .threads = args.threads,
                           .progress = [&](int64_t bytes) {
                             done += bytes;
                             if (args.progress) args.progress(done, result.bytes);
                           }};
  NewFiles files(args.to);
  // The first to get its name: every export has one of this name.
  RETURN_IF_ERROR(files.AddText(std::string(kConfigName), config));
  RETURN_IF_ERROR(WriteShards(shards, tensors, writing, &files));
  if (shards.size() > 1) RETURN_IF_ERROR(files.AddText(std::string(kIndexName), IndexText(shards)));
  for (const auto& [name, text] : args.texts) RETURN_IF_ERROR(files.AddText(name, text));
  RETURN_IF_ERROR(files.AddText("generation_config.json", GenerationConfigText(args.eos)));
  RETURN_IF_ERROR(GiveNames(args, &files));
  result.files = files.names();
  return result;
}

}  // namespace mt::hf
