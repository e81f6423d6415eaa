// A step of the copy is one task of the core, so that every round of the core ends with its commit.
#include "daemon/backup/backup_runner.h"

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <pthread.h>
#include <utility>

#include "common/base/files.h"
#include "common/base/log.h"
#include "daemon/backup/archive.h"
#include "daemon/store/sqlite_store.h"
#include "daemon/store/store_check.h"
#include "daemon/store/store_folder.h"

namespace mt::daemon {
namespace {

// What one step may take of the core's round.
constexpr std::chrono::milliseconds kStep{2};
// What the copy must leave free on the state's disk.
constexpr int64_t kSpareBytes = 64 << 20;

// A folder of its own, gone with the object.
class CopyFolder {
 public:
  explicit CopyFolder(std::string path) : path_(std::move(path)) { Remove(); }
  ~CopyFolder() { Remove(); }
  CopyFolder(const CopyFolder&) = delete;
  CopyFolder& operator=(const CopyFolder&) = delete;
  std::string File() const { return base::JoinPath(path_, kDatabaseFile); }
  Status Make() const { return base::MakeDirs(path_); }

 private:
  void Remove() const {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path_;
};

Status CheckSpace(const std::string& state_dir) {
  const std::string database = base::JoinPath(state_dir, kDatabaseFile);
  ASSIGN_OR_RETURN(int64_t needed, base::FileSize(database));
  const auto log = base::FileSize(database + "-wal");
  needed += kSpareBytes + (log.ok() ? *log : 0);
  ASSIGN_OR_RETURN(const int64_t free, base::FreeBytes(state_dir));
  if (free >= needed) return OkStatus();
  return base::Error(absl::StatusCode::kResourceExhausted,
                     "{}: the backup's copy of the store needs {} MiB, {} MiB are free", state_dir,
                     needed >> 20, free >> 20);
}

Status Left() { return base::Error(absl::StatusCode::kCancelled, "the backup was given up"); }

}  // namespace

BackupRunner::BackupRunner(SqliteStore* store, std::string state_dir)
    : store_(store), state_dir_(std::move(state_dir)) {}

BackupRunner::~BackupRunner() { Stop(); }

bool BackupRunner::Begin() {
  const base::MutexLock lock(&mu_);
  return !stopping_ && !std::exchange(busy_, true);
}

void BackupRunner::Start(const Post& post, Reader reader) {
  if (!Begin()) {
    reader.end(base::FailedPrecondition("another backup is under way; wait for its end"));
    return;
  }
  const base::MutexLock lock(&mu_);
  if (thread_.joinable()) thread_.join();  // it has nothing left to do
  thread_ = std::thread([this, post, reader = std::move(reader)] {
    const Status status = Run(post, reader);
    if (!status.ok()) log::Warn("backup failed", {{"error", base::Message(status)}});
    {
      const base::MutexLock done(&mu_);
      busy_ = false;
    }
    reader.end(status);
  });
  pthread_setname_np(thread_.native_handle(), "mt-backup");
}

void BackupRunner::Stop() {
  std::thread last;
  {
    const base::MutexLock lock(&mu_);
    stopping_ = true;
    last = std::move(thread_);
  }
  if (last.joinable()) last.join();
}

Status BackupRunner::Run(const Post& post, const Reader& reader) {
  RETURN_IF_ERROR(CheckSpace(state_dir_));
  if (reader.flush) reader.flush();
  const CopyFolder folder(base::JoinPath(state_dir_, "backup.tmp"));
  RETURN_IF_ERROR(folder.Make());
  RETURN_IF_ERROR(Copy(post, folder.File()));
  RETURN_IF_ERROR(SealCopy(folder.File()));
  ASSIGN_OR_RETURN(const StoreReport report, CheckDatabase(folder.File(), /*whole=*/false));
  if (!report.damages.empty()) {
    return base::DataLoss("the store is damaged, so this would be no backup: {}",
                          report.damages.front());
  }
  return Send(folder.File(), reader);
}

Status BackupRunner::Copy(const Post& post, const std::string& path) {
  // Both are used on the core's thread only, between a post and its promise.
  std::unique_ptr<StoreCopy> copy;
  StatusOr<bool> complete = false;
  while (complete.ok() && !*complete && !stopping_) {
    std::promise<void> stepped;
    post([&] {
      if (copy == nullptr) copy = store_->StartCopy(path);
      complete = copy->Step(kStep);
      if (!complete.ok() || *complete) copy.reset();
      stepped.set_value();
    });
    stepped.get_future().wait();
  }
  if (copy != nullptr) {
    std::promise<void> ended;
    post([&] {
      copy.reset();
      ended.set_value();
    });
    ended.get_future().wait();
  }
  RETURN_IF_ERROR(complete.status());
  return *complete ? OkStatus() : Left();
}

Status BackupRunner::Send(const std::string& copy, const Reader& reader) const {
  ASSIGN_OR_RETURN(BackupArchive archive,
                   BackupArchive::Open(copy, base::JoinPath(state_dir_, "history")));
  int64_t sent = 0;
  for (;;) {
    ASSIGN_OR_RETURN(std::string bytes, archive.Next());
    if (bytes.empty()) break;
    sent += static_cast<int64_t>(bytes.size());
    if (stopping_ || !reader.take(std::move(bytes))) return Left();
  }
  log::Info("backup sent", {{"bytes", sent}});
  return OkStatus();
}

}  // namespace mt::daemon
