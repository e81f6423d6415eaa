// A sequence of local steps, each followed by an agreement on one status, so that no rank waits for
// another that has failed. The order of a commit: shards with fsync, the ranks' manifests with
// fsync, coverage, manifest, fence check, rename, fsync of the directory.
#include "worker/checkpoint/writer.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "worker/checkpoint/collect_ranks.h"
#include "worker/checkpoint/exchange.h"
#include "worker/checkpoint/format/column_parts.h"
#include "worker/checkpoint/format/rank_manifest.h"

namespace mt::checkpoint {
namespace {

std::string TypeName(kernels::DType dtype) {
  std::string name(kernels::Name(dtype));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

Status RemoveTree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  return error ? base::ErrnoError(error.value(), "remove " + path) : OkStatus();
}

// Sum of the sizes of a folder's files.
StatusOr<int64_t> BytesBelow(const std::string& path) {
  int64_t bytes = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    bytes += static_cast<int64_t>(entry->file_size(error));
  }
  if (error) return base::ErrnoError(error.value(), "read " + path);
  return bytes;
}

// One save on this rank. Each step returns this rank's own status, and Agree turns it into the
// status of all.
class Save {
 public:
  explicit Save(const SaveArgs& args)
      : args_(args),
        exchange_(args.group, args.stream),
        folder_(
            base::JoinPath(args.directory, FolderName({args.manifest.step, args.manifest.epoch}))),
        temporary_(folder_ + ".tmp") {}

  StatusOr<SaveResult> Run() {
    const auto start = std::chrono::steady_clock::now();
    const Status status = WriteAndCommit();
    if (!status.ok()) {
      // Best effort: a folder that remains is ignored by readers and removed by a later epoch's
      // prune.
      if (exchange_.rank() == 0 && StillOurs().ok()) (void)RemoveTree(temporary_);
      return status;
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    return SaveResult{
        .path = folder_, .bytes = total_bytes_, .seconds = took.count(), .digest = digest_};
  }

 private:
  // This rank's status after the named failpoint.
  Status At(std::string_view point, Status status) const {
    if (!status.ok() || !args_.failpoint) return status;
    return args_.failpoint(point);
  }

  // The status of all, with what this rank's own tells besides code and text.
  Status Agree(const Status& mine) {
    Status all = exchange_.Agree(mine);
    if (all.code() != mine.code()) return all;
    mine.ForEachPayload(
        [&all](absl::string_view key, const absl::Cord& payload) { all.SetPayload(key, payload); });
    return all;
  }

  Status StillOurs() const {
    return args_.fence == nullptr ? OkStatus() : CheckFence(args_.directory, *args_.fence);
  }

  Status MakeFolder() const {
    // A directory with a fence was there when that was raised: one that is gone is not made anew,
    // since that is what a file system looks like that is not mounted.
    if (args_.fence == nullptr) RETURN_IF_ERROR(base::MakeDirs(args_.directory));
    Status ours = StillOurs();
    if (absl::IsNotFound(ours) && args_.restore_fence) ours = args_.restore_fence(ours);
    RETURN_IF_ERROR(ours);
    RETURN_IF_ERROR(RemoveTree(temporary_));
    std::error_code error;
    if (base::Exists(folder_)) {
      if (args_.fence == nullptr) return absl::AlreadyExistsError(folder_ + " exists already");
      // The directory epoch is this run's alone, and a step that is saved is not saved again: an
      // earlier save got as far as the rename and failed after it.
      std::filesystem::rename(folder_, temporary_, error);
      if (error) return base::ErrnoError(error.value(), "move " + folder_ + " aside");
      RETURN_IF_ERROR(RemoveTree(temporary_));
    }
    std::filesystem::create_directory(temporary_, error);
    return error ? base::ErrnoError(error.value(), "create folder " + temporary_) : OkStatus();
  }

  Status Prepare() const {
    RETURN_IF_ERROR(args_.ready);
    return exchange_.rank() == 0 ? MakeFolder() : OkStatus();
  }

  Status WriteAndCommit() {
    RETURN_IF_ERROR(Agree(At("begin", Prepare())));
    RETURN_IF_ERROR(exchange_.Agree(At("folder", OkStatus())));
    RankRecord record;
    const Status written = At("shard", WriteShard(&record));
    RETURN_IF_ERROR(exchange_.Agree(written));
    ASSIGN_OR_RETURN(const std::vector<std::string> records, exchange_.AllGather(ToText(record)));
    Manifest manifest = args_.manifest;
    RETURN_IF_ERROR(exchange_.Agree(At("gathered", Collect(records, &manifest))));
    return Agree(exchange_.rank() == 0 ? Commit(manifest) : OkStatus());
  }

  // Writes this rank's file and its manifest, which *record identifies.
  Status WriteShard(RankRecord* record) const {
    if (args_.slices.empty()) return OkStatus();
    const std::string file = RankFileName(exchange_.rank());
    std::vector<TensorToWrite> tensors;
    std::vector<SliceEntry> stored;  // without digests
    for (const SliceToSave& slice : args_.slices) {
      tensors.push_back({.name = "",
                         .dtype = TypeName(slice.dtype),
                         .shape = slice.shape,
                         .data = slice.data,
                         .places = slice.places});
      AddStored(slice, file, &tensors.back(), &stored);
    }
    ASSIGN_OR_RETURN(std::vector<BlockDigests> digests,
                     WriteSafetensors(base::JoinPath(temporary_, file), tensors, args_.progress,
                                      args_.reader, args_.threads, args_.manifest.block_bytes));
    TensorTable table;
    size_t next = 0;  // of what is stored
    for (size_t i = 0; i < tensors.size(); ++i) {
      const SliceToSave& slice = args_.slices[i];
      TensorEntry& tensor = table[slice.key];
      tensor.dtype = tensors[i].dtype;
      tensor.shape = slice.global_shape;
      for (size_t parts = std::max<size_t>(tensors[i].parts.size(), 1); parts > 0;
           --parts, ++next) {
        stored[next].digests = std::move(digests[next]);
        tensor.slices.push_back(std::move(stored[next]));
      }
    }
    const std::string text = RankManifestText(table);
    *record = {.bytes = std::ssize(text), .digest = base::Hash128Of(text)};
    // Syncs the folder, too, and with it the entry of the file.
    return base::WriteFileAtomic(base::JoinPath(temporary_, RankManifestName(exchange_.rank())),
                                 text);
  }

  // Names a slice, or the parts in which it is stored, and appends what the manifest will say of
  // them.
  static void AddStored(const SliceToSave& slice, const std::string& file, TensorToWrite* tensor,
                        std::vector<SliceEntry>* stored) {
    const int64_t parts = slice.by_columns
                              ? NumColumnParts(slice.global_shape, slice.offset, slice.shape,
                                               kernels::SizeOf(slice.dtype))
                              : 1;
    SliceEntry entry{
        .file = file, .tensor = "", .offset = slice.offset, .shape = slice.shape, .digests = {}};
    if (parts > 1) entry.shape[1] /= parts;
    const bool whole = entry.shape == slice.global_shape;
    for (int64_t i = 0; i < parts; ++i) {
      entry.tensor = slice.key + (whole ? "" : fmt::format("#{}", stored->size()));
      stored->push_back(entry);
      if (parts == 1) {
        tensor->name = entry.tensor;
      } else {
        tensor->parts.push_back(entry.tensor);
        entry.offset[1] += entry.shape[1];
      }
    }
  }

  // Only rank 0 reads what the others have written; all learn whether it is whole.
  Status Collect(const std::vector<std::string>& records, Manifest* manifest) const {
    return exchange_.rank() == 0 ? CollectRanks(temporary_, records, manifest) : OkStatus();
  }

  Status Commit(Manifest& manifest) {
    manifest.world_size = exchange_.size();
    manifest.created = base::FormatUtc(base::ToUnixMicros(base::Clock::Real()->WallNow()));
    const std::string text = ToJson(manifest);
    digest_ = ManifestDigest(text);
    RETURN_IF_ERROR(base::WriteFileAtomic(base::JoinPath(temporary_, kManifestName), text));
    ASSIGN_OR_RETURN(total_bytes_, BytesBelow(temporary_));
    RETURN_IF_ERROR(At("manifest", OkStatus()));
    RETURN_IF_ERROR(At("checked", StillOurs()));
    std::error_code error;
    std::filesystem::rename(temporary_, folder_, error);
    if (error) return base::ErrnoError(error.value(), "rename " + temporary_ + " to " + folder_);
    RETURN_IF_ERROR(base::SyncDir(args_.directory));
    return At("renamed", OkStatus());
  }

  const SaveArgs& args_;
  Exchange exchange_;
  const std::string folder_;
  const std::string temporary_;
  int64_t total_bytes_ = 0;  // on rank 0
  std::string digest_;
};

}  // namespace

StatusOr<SaveResult> SaveCheckpoint(const SaveArgs& args) { return Save(args).Run(); }

}  // namespace mt::checkpoint
