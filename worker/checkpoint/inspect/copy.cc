// The manifest's bytes are copied as they are, so that the digest of the checkpoint stays.
#include "worker/checkpoint/inspect/copy.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <set>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "common/base/files.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/evaluation.h"
#include "worker/checkpoint/format/fence.h"
#include "worker/checkpoint/format/label.h"
#include "worker/checkpoint/inspect/saved_tokenizer.h"

namespace mt::checkpoint {
namespace {

constexpr size_t kBufferBytes = size_t{4} << 20;

Status WriteWhole(int fd, const char* from, size_t bytes, const std::string& path) {
  while (bytes > 0) {
    const ssize_t put = ::write(fd, from, bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return base::ErrnoError(errno, "write " + path);
    from += put;
    bytes -= static_cast<size_t>(put);
  }
  return OkStatus();
}

// Copies and syncs a file; `done` gets the bytes of each piece and ends the copy by an error.
Status CopyFile(const std::string& from, const std::string& to,
                const std::function<Status(int64_t)>& done) {
  ASSIGN_OR_RETURN(const base::Fd in, base::OpenToRead(from, {}));
  const base::Fd out(::open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!out) return base::ErrnoError(errno, "create " + to);
  std::vector<char> buffer(kBufferBytes);
  for (;;) {
    const ssize_t got = ::read(in.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::ErrnoError(errno, "read " + from);
    if (got == 0) break;
    RETURN_IF_ERROR(WriteWhole(out.get(), buffer.data(), static_cast<size_t>(got), to));
    RETURN_IF_ERROR(done(got));
  }
  return ::fsync(out.get()) == 0 ? OkStatus() : base::ErrnoError(errno, "fsync " + to);
}

Status CheckDestination(const std::string& directory, const CheckpointId& id,
                        const std::string& folder) {
  ASSIGN_OR_RETURN(const std::optional<Fence> fence, ReadFence(directory));
  if (fence && !fence->job_uid.empty()) {
    return base::FailedPrecondition(
        "{} is held by job {} (epoch {}), rank 0 on host {}: only that job writes there", directory,
        fence->job_uid, fence->epoch, fence->holder.host);
  }
  if (!Counts(fence, id)) {
    return base::FailedPrecondition(
        "{} has a fence under which {} would not count: a later epoch began without it", directory,
        FolderName(id));
  }
  if (base::Exists(folder))
    return absl::AlreadyExistsError(folder + " is there already; a copy overwrites nothing");
  return OkStatus();
}

// The files of the tokenizer that the checkpoint tells, where they are kept beside it and not yet
// beside the copy: those that name it by the digest of their content, so that a second copy is the
// same.
Status CopyTokenizer(const CopyArgs& args) {
  ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(args.from.directory, args.from.id));
  const auto tokenizer = TokenizerOf(manifest);
  if (!tokenizer) return OkStatus();
  const std::string from = base::JoinPath(args.from.directory, FolderName(*tokenizer));
  const std::string to = base::JoinPath(args.to, FolderName(*tokenizer));
  if (!base::Exists(from) || from == to) return OkStatus();
  RETURN_IF_ERROR(base::MakeDirs(to));
  std::error_code error;
  std::filesystem::directory_iterator it(from, error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    const std::string target = base::JoinPath(to, it->path().filename().string());
    if (!it->is_regular_file(error) || base::Exists(target)) continue;
    ASSIGN_OR_RETURN(const std::string text, base::ReadFile(it->path().string()));
    RETURN_IF_ERROR(base::WriteFileAtomic(target, text));
  }
  return error ? base::ErrnoError(error.value(), "list " + from) : OkStatus();
}

class Copying {
 public:
  Copying(const CopyArgs& args, std::string temporary)
      : args_(args), temporary_(std::move(temporary)) {}

  Status Run() {
    const std::string& from = args_.from.folder;
    ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(args_.from.directory, args_.from.id));
    const std::set<std::string> files = FilesOf(manifest);
    for (const std::string& file : files) {
      ASSIGN_OR_RETURN(const int64_t bytes, base::FileSize(base::JoinPath(from, file)));
      file_bytes_ += bytes;
    }
    for (const std::string& file : files) RETURN_IF_ERROR(CopyOne(file));
    for (const std::string_view more : {kEvaluationName, kLabelName}) {
      if (base::Exists(base::JoinPath(from, more))) RETURN_IF_ERROR(CopyOne(std::string(more)));
    }
    RETURN_IF_ERROR(CopyOne(std::string(kManifestName)));
    RETURN_IF_ERROR(base::SyncDir(temporary_));
    return ReadBack();
  }

 private:
  Status CopyOne(const std::string& file) {
    return CopyFile(base::JoinPath(args_.from.folder, file), base::JoinPath(temporary_, file),
                    [this](int64_t bytes) -> Status {
                      copied_ = std::min(copied_ + bytes, file_bytes_);
                      if (args_.progress) args_.progress(copied_, 2 * file_bytes_);
                      if (!args_.is_cancelled || !args_.is_cancelled()) return OkStatus();
                      return absl::CancelledError("the copy was given up");
                    });
  }

  Status ReadBack() const {
    const VerifyReport report =
        Verify({.folders = {temporary_},
                .threads = args_.threads,
                .progress = [this](int64_t done, int64_t /*total*/) {
                  if (args_.progress)
                    args_.progress(std::min(file_bytes_ + done, 2 * file_bytes_), 2 * file_bytes_);
                }});
    if (report.damage.empty()) return OkStatus();
    const Damage& first = report.damage[0];
    return base::DataLoss("the copy of {} is not what the manifest says: {} {}: {}",
                          base::JoinPath(args_.from.folder, first.file), first.file, first.slice,
                          first.what);
  }

  const CopyArgs& args_;
  const std::string temporary_;
  int64_t file_bytes_ = 0;
  int64_t copied_ = 0;
};

}  // namespace

StatusOr<std::string> CopyCheckpoint(const CopyArgs& args) {
  const std::string folder = base::JoinPath(args.to, FolderName(args.from.id));
  const std::string temporary = folder + ".tmp";
  RETURN_IF_ERROR(base::MakeDirs(args.to));
  RETURN_IF_ERROR(CheckDestination(args.to, args.from.id, folder));
  std::error_code error;
  if (!std::filesystem::create_directory(temporary, error)) {
    if (error) return base::ErrnoError(error.value(), "create folder " + temporary);
    return absl::AlreadyExistsError(
        temporary + " is there: another copy is under way, or was interrupted; then remove it");
  }
  Status copied = CopyTokenizer(args);
  if (copied.ok()) copied = Copying(args, temporary).Run();
  // A run may have taken the directory over meanwhile.
  if (copied.ok()) copied = CheckDestination(args.to, args.from.id, folder);
  if (copied.ok()) {
    std::filesystem::rename(temporary, folder, error);
    if (error) copied = base::ErrnoError(error.value(), "rename " + temporary);
  }
  if (!copied.ok()) {
    std::filesystem::remove_all(temporary, error);
    return copied;
  }
  RETURN_IF_ERROR(base::SyncDir(args.to));
  const auto label = ReadLabel(folder);
  if (label.ok()) RETURN_IF_ERROR(WriteLabel(args.to, args.from.id, *label));
  return folder;
}

}  // namespace mt::checkpoint
