// sqlite3_backup with the store's own connection as its source: changes by another would begin the
// copy anew.
#include "daemon/store/store_copy.h"

#include <cerrno>
#include <fcntl.h>
#include <sqlite3.h>
#include <utility>

#include "common/base/files.h"

namespace mt::daemon {
namespace {

constexpr int kPagesPerCall = 16;  // 64 KiB

}  // namespace

StoreCopy::StoreCopy(sqlite3* source, const std::string& source_path, std::string path)
    : source_(source), source_path_(source_path), path_(std::move(path)) {}

StoreCopy::~StoreCopy() {
  if (backup_ != nullptr) sqlite3_backup_finish(backup_);
}

Status StoreCopy::Begin() {
  const base::Fd made(open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!made) return base::ErrnoError(errno, "create " + path_);
  ASSIGN_OR_RETURN(copy_, OpenDatabase(path_, SQLITE_OPEN_READWRITE));
  for (const char* pragma :
       {"PRAGMA locking_mode=EXCLUSIVE", "PRAGMA journal_mode=OFF", "PRAGMA synchronous=OFF"}) {
    RETURN_IF_ERROR(RunSql(copy_.get(), path_, pragma));
  }
  backup_ = sqlite3_backup_init(copy_.get(), "main", source_, "main");
  return backup_ != nullptr ? OkStatus() : SqliteError(copy_.get(), path_, "copy the store");
}

StatusOr<bool> StoreCopy::Step(std::chrono::microseconds budget) {
  const auto until = std::chrono::steady_clock::now() + budget;
  if (backup_ == nullptr) RETURN_IF_ERROR(Begin());
  int code = SQLITE_OK;
  do {
    code = sqlite3_backup_step(backup_, kPagesPerCall);
  } while (code == SQLITE_OK && std::chrono::steady_clock::now() < until);
  if (code == SQLITE_OK) return false;
  // Errors of either side are told by finish, on the copy's connection.
  const int finished = sqlite3_backup_finish(std::exchange(backup_, nullptr));
  if (code == SQLITE_DONE && finished == SQLITE_OK) {
    copy_.reset();
    return true;
  }
  return SqliteError(copy_.get(), fmt::format("{} (copied to {})", source_path_, path_),
                     "copy the store");
}

Status SealCopy(const std::string& path) {
  ASSIGN_OR_RETURN(const Database db, OpenDatabase(path, SQLITE_OPEN_READWRITE));
  RETURN_IF_ERROR(RunSql(db.get(), path, "PRAGMA synchronous=OFF"));
  return RunSql(db.get(), path, "PRAGMA journal_mode=DELETE");
}

}  // namespace mt::daemon
