// What can be refused is refused before the file: the job, its network, the type, the name, the
// room.
#include "worker/llmc/export.h"

#include <filesystem>
#include <map>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "common/base/files.h"
#include "megatrain/v1/job.pb.h"
#include "worker/checkpoint/format/whole_manifest.h"
#include "worker/hf/checkpoint_job.h"
#include "worker/hf/element_types.h"
#include "worker/hf/new_files.h"
#include "worker/hf/tensor_file.h"
#include "worker/hf/tensor_writer.h"
#include "worker/llmc/tensors.h"

namespace mt::llmc {
namespace {

namespace fs = std::filesystem;
using megatrain::v1::JobSpec;

constexpr std::string_view kSuffix = ".bin";

StatusOr<Version> VersionOf(const ExportArgs& args, const JobSpec& job) {
  if (args.dtype.empty())
    return hf::TypeThatTrains(job) == TypeOf(Version::kBf16) ? Version::kBf16 : Version::kF32;
  for (const Version version : {Version::kF32, Version::kBf16}) {
    if (args.dtype == TorchNameOf(version)) return version;
  }
  return base::InvalidArgument(
      "dtype {}: llm.c has model files of float32 (version 3) and bfloat16 (version 5)",
      args.dtype);
}

// The path of the file.
StatusOr<std::string> FileOf(const std::string& to, int64_t step) {
  std::error_code error;
  // As llm.c names those that it writes.
  if (fs::is_directory(to, error)) return base::JoinPath(to, fmt::format("model_{:08}.bin", step));
  if (to.ends_with(kSuffix) && to.size() > kSuffix.size()) return to;
  return base::InvalidArgument(
      "{}: name a file that ends in .bin (llm.c takes another name for the description of a "
      "model), "
      "or a folder that is there",
      to);
}

std::string FolderOf(const std::string& file) {
  const std::string folder = fs::path(file).parent_path().string();
  return folder.empty() ? "." : folder;
}

Status CheckPlace(const std::string& file, bool overwrite, int64_t bytes) {
  if (!overwrite && base::Exists(file)) {
    return base::Error(absl::StatusCode::kAlreadyExists,
                       "{} is there already: name another file, or --overwrite", file);
  }
  const std::string folder = FolderOf(file);
  RETURN_IF_ERROR(base::MakeDirs(folder));
  ASSIGN_OR_RETURN(const int64_t room, base::FreeBytes(folder));
  if (room > bytes) return OkStatus();
  return base::Error(absl::StatusCode::kResourceExhausted,
                     "{} has {} bytes free, and the file has {}", folder, room, bytes);
}

}  // namespace

StatusOr<ExportResult> Export(const ExportArgs& args) {
  ASSIGN_OR_RETURN(const checkpoint::Manifest manifest,
                   checkpoint::ReadWholeManifest(args.from.directory, args.from.id));
  ASSIGN_OR_RETURN(const JobSpec job, hf::JobOfCheckpoint(manifest));
  const megatrain::v1::Model& model = job.model();
  ASSIGN_OR_RETURN(const Version version, VersionOf(args, job));
  ExportResult result;
  result.trained_in = hf::TorchName(hf::TypeThatTrains(job));
  ASSIGN_OR_RETURN(result.header, HeaderOf(model, version));
  ASSIGN_OR_RETURN(result.file, FileOf(args.to, manifest.step));
  result.bytes = FileBytes(result.header);
  RETURN_IF_ERROR(CheckPlace(result.file, args.overwrite, result.bytes));

  const std::map<std::string, hf::Shape> parameters = hf::ParametersOf(model);
  int64_t done = kHeaderBytes;
  const hf::TensorArgs writing{.folder = args.from.folder,
                               .manifest = &manifest,
                               .parameters = &parameters,
                               .dtype = std::string(TypeOf(version)),
                               .one_plus = model.norm_one_plus(),
                               .buffer_bytes = args.buffer_bytes,
                               .threads = args.threads,
                               .progress = [&](int64_t bytes) {
                                 done += bytes;
                                 if (args.progress) args.progress(done, result.bytes);
                               }};
  const fs::path file = result.file;
  hf::NewFiles files(FolderOf(result.file));
  ASSIGN_OR_RETURN(
      const std::unique_ptr<hf::TensorFile> out,
      hf::TensorFile::CreateWith(files.Add(file.filename().string()), HeaderText(result.header),
                                 result.bytes - kHeaderBytes));
  RETURN_IF_ERROR(hf::WriteTensors(writing, TensorsOf(model, result.header), out.get()));
  RETURN_IF_ERROR(out->Finish());
  RETURN_IF_ERROR(files.Commit([&](const std::string&) { return !args.overwrite; }));
  return result;
}

}  // namespace mt::llmc
