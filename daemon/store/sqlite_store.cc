// SQLite with prepared statements for writes; SQLite's error codes become Status codes that say
// what an operator can do.
#include "daemon/store/sqlite_store.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <system_error>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/log.h"

namespace mt::daemon {
namespace {

constexpr int kSchemaVersion = 2;
constexpr int kApplicationId = 0x4d544350;  // "MTCP"
constexpr std::array<const char*, kNumTables> kTableNames = {
    "jobs", "operations", "requests", "events", "allocations", "workers", "rendezvous", "cluster"};

const char* NameOf(Table table) { return kTableNames[static_cast<size_t>(table)]; }

struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

void BindText(sqlite3_stmt* statement, int index, std::string_view text) {
  sqlite3_bind_text64(statement, index, text.data(), text.size(), SQLITE_STATIC, SQLITE_UTF8);
}

void BindBlob(sqlite3_stmt* statement, int index, std::string_view bytes) {
  sqlite3_bind_blob64(statement, index, bytes.data(), bytes.size(), SQLITE_STATIC);
}

std::string_view Column(sqlite3_stmt* statement, int index) {
  const void* data = sqlite3_column_blob(statement, index);
  const int bytes = sqlite3_column_bytes(statement, index);
  return bytes == 0 ? std::string_view()
                    : std::string_view(static_cast<const char*>(data), static_cast<size_t>(bytes));
}

bool IsNoSpace(int error_number) { return error_number == ENOSPC || error_number == EDQUOT; }

// Locks the folder for this process; the kernel releases the lock however the process ends. The
// file holds the process id for the message to a second coordinator.
StatusOr<base::Fd> LockFolder(const std::string& state_dir) {
  const std::string path = base::JoinPath(state_dir, "coordinator.lock");
  base::Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return base::ErrnoError(errno, fmt::format("open {}", path));
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return base::ErrnoError(errno, fmt::format("lock {}", path));
    std::array<char, 32> holder{};
    const ssize_t bytes = pread(fd.get(), holder.data(), holder.size() - 1, 0);
    return base::FailedPrecondition(
        "state folder {} is in use by another coordinator (process {}); stop that one or give this "
        "one its own --state",
        state_dir, bytes > 0 ? holder.data() : "unknown");
  }
  // The lock is what counts. On a full disk the number may stay that of an earlier holder.
  const std::string pid = std::to_string(getpid());
  const auto bytes = static_cast<ssize_t>(pid.size());
  if (pwrite(fd.get(), pid.data(), pid.size(), 0) != bytes || ftruncate(fd.get(), bytes) != 0) {
    log::Warn("the lock file does not name this process",
              {{"path", path}, {"error", std::generic_category().message(errno)}});
  }
  return fd;
}

}  // namespace

struct SqliteStore::Statements {
  Statement begin;
  Statement commit;
  std::array<Statement, kNumTables> put;
  std::array<Statement, kNumTables> erase;
};

SqliteStore::SqliteStore(base::Fd lock, std::string path)
    : lock_(std::move(lock)), path_(std::move(path)) {}

SqliteStore::~SqliteStore() {
  statements_.reset();
  sqlite3_close_v2(db_);
}

Status SqliteStore::FileError(std::string_view what) const {
  int code = db_ == nullptr ? SQLITE_NOMEM : sqlite3_errcode(db_);
  // A quota, and file systems that tell of a full disk only when data is synced.
  if (code == SQLITE_IOERR && IsNoSpace(sqlite3_system_errno(db_))) code = SQLITE_FULL;
  const char* why = db_ == nullptr ? "out of memory" : sqlite3_errmsg(db_);
  switch (code) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return base::DataLoss(
          "{}: the store is damaged ({}); restore it from a backup, or start with an empty --state",
          path_, why);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
    case SQLITE_AUTH:
      return base::Error(absl::StatusCode::kPermissionDenied,
                         "{}: {} ({}); check the owner and mode of file and folder", path_, what,
                         why);
    case SQLITE_FULL:
      return base::Error(absl::StatusCode::kResourceExhausted,
                         "{}: {} ({}); free space on this file system", path_, what, why);
    case SQLITE_BUSY:
      return base::FailedPrecondition("{}: another process has this file open ({})", path_, why);
    default:
      return base::Error(absl::StatusCode::kInternal, "{}: {} ({})", path_, what, why);
  }
}

Status SqliteStore::Run(const char* sql) {
  if (sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) == SQLITE_OK) return OkStatus();
  return FileError(sql);
}

StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(const std::string& state_dir) {
  RETURN_IF_ERROR(base::MakeDirs(state_dir));
  ASSIGN_OR_RETURN(base::Fd lock, LockFolder(state_dir));
  std::unique_ptr<SqliteStore> store(
      new SqliteStore(std::move(lock), base::JoinPath(state_dir, "coordinator.db")));
  RETURN_IF_ERROR(store->OpenFile());
  RETURN_IF_ERROR(store->Migrate());
  RETURN_IF_ERROR(store->Prepare());
  RETURN_IF_ERROR(base::SyncDir(state_dir));
  return store;
}

Status SqliteStore::OpenFile() {
  if (sqlite3_open_v2(path_.c_str(), &db_,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                      nullptr) != SQLITE_OK) {
    return FileError("open");
  }
  sqlite3_extended_result_codes(db_, 0);
  RETURN_IF_ERROR(Run("PRAGMA locking_mode=EXCLUSIVE"));
  RETURN_IF_ERROR(Run("PRAGMA journal_mode=WAL"));
  RETURN_IF_ERROR(Run("PRAGMA synchronous=FULL"));
  Statement check;
  sqlite3_stmt* raw = nullptr;
  if (sqlite3_prepare_v2(db_, "PRAGMA quick_check(1)", -1, &raw, nullptr) != SQLITE_OK) {
    return FileError("check");
  }
  check.reset(raw);
  if (sqlite3_step(raw) != SQLITE_ROW) return FileError("check");
  if (Column(raw, 0) != "ok") {
    return base::DataLoss(
        "{}: the store is damaged ({}); restore it from a backup, or start with an empty --state",
        path_, Column(raw, 0));
  }
  return OkStatus();
}

Status SqliteStore::Migrate() {
  sqlite3_stmt* raw = nullptr;
  if (sqlite3_prepare_v2(db_, "PRAGMA user_version", -1, &raw, nullptr) != SQLITE_OK) {
    return FileError("read the version");
  }
  Statement query(raw);
  if (sqlite3_step(raw) != SQLITE_ROW) return FileError("read the version");
  const int version = sqlite3_column_int(raw, 0);
  query.reset();
  if (version > kSchemaVersion) {
    return base::FailedPrecondition(
        "{} was written by a newer version (its schema is {}, this program knows {}); run the "
        "newer coordinator",
        path_, version, kSchemaVersion);
  }
  if (version == kSchemaVersion) return OkStatus();
  std::string sql = "BEGIN IMMEDIATE;";
  for (const char* table : kTableNames) {
    // Version 1 had all tables but the last.
    if (version == 1 && table != NameOf(Table::kCluster)) continue;
    sql += fmt::format(
        "CREATE TABLE {} (key TEXT PRIMARY KEY, value BLOB NOT NULL, time_us INTEGER NOT NULL) "
        "WITHOUT ROWID;",
        table);
  }
  sql += fmt::format("PRAGMA application_id={}; PRAGMA user_version={}; COMMIT;", kApplicationId,
                     kSchemaVersion);
  return Run(sql.c_str());
}

Status SqliteStore::Prepare() {
  statements_ = std::make_unique<Statements>();
  const auto prepare = [this](const std::string& sql, Statement* out) {
    sqlite3_stmt* raw = nullptr;
    if (sqlite3_prepare_v3(db_, sql.c_str(), -1, SQLITE_PREPARE_PERSISTENT, &raw, nullptr) !=
        SQLITE_OK) {
      return FileError(sql);
    }
    out->reset(raw);
    return OkStatus();
  };
  RETURN_IF_ERROR(prepare("BEGIN IMMEDIATE", &statements_->begin));
  RETURN_IF_ERROR(prepare("COMMIT", &statements_->commit));
  for (size_t i = 0; i < kNumTables; ++i) {
    RETURN_IF_ERROR(prepare(
        fmt::format(
            "INSERT INTO {} (key, value, time_us) VALUES (?1, ?2, ?3) ON CONFLICT (key) DO UPDATE "
            "SET value = excluded.value, time_us = excluded.time_us",
            kTableNames[i]),
        &statements_->put[i]));
    RETURN_IF_ERROR(prepare(fmt::format("DELETE FROM {} WHERE key = ?1", kTableNames[i]),
                            &statements_->erase[i]));
  }
  return OkStatus();
}

Status SqliteStore::Apply(const Write& write) {
  const auto table = static_cast<size_t>(write.table);
  sqlite3_stmt* statement =
      write.value.has_value() ? statements_->put[table].get() : statements_->erase[table].get();
  BindText(statement, 1, write.key);
  if (write.value.has_value()) {
    BindBlob(statement, 2, *write.value);
    sqlite3_bind_int64(statement, 3, write.time_us);
  }
  const int code = sqlite3_step(statement);
  Status status = code == SQLITE_DONE ? OkStatus() : FileError("write");
  sqlite3_reset(statement);
  sqlite3_clear_bindings(statement);
  return status;
}

Status SqliteStore::Commit(const std::vector<Write>& batch) {
  const auto step = [this](sqlite3_stmt* statement) {
    Status status = sqlite3_step(statement) == SQLITE_DONE ? OkStatus() : FileError("commit");
    sqlite3_reset(statement);
    return status;
  };
  RETURN_IF_ERROR(step(statements_->begin.get()));
  for (const Write& write : batch) {
    Status status = Apply(write);
    if (status.ok()) continue;
    sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
    return status;
  }
  Status status = step(statements_->commit.get());
  if (!status.ok()) sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
  return status;
}

Status SqliteStore::ForEach(Table table, const Visitor& visit) {
  sqlite3_stmt* raw = nullptr;
  const std::string sql = fmt::format("SELECT key, value FROM {} ORDER BY key", NameOf(table));
  if (sqlite3_prepare_v2(db_, sql.c_str(), -1, &raw, nullptr) != SQLITE_OK)
    return FileError("read");
  const Statement statement(raw);
  int code = SQLITE_ROW;
  while ((code = sqlite3_step(raw)) == SQLITE_ROW) {
    const Status status = visit(Column(raw, 0), Column(raw, 1));
    if (!status.ok()) {
      return base::Annotate(
          status, fmt::format("{}: table {}, key '{}'", path_, NameOf(table), Column(raw, 0)));
    }
  }
  return code == SQLITE_DONE ? OkStatus() : FileError("read");
}

Status SqliteStore::ForEachNewest(Table table, const std::string& from, const Taker& visit) {
  sqlite3_stmt* raw = nullptr;
  const std::string sql =
      fmt::format("SELECT key, value FROM {} WHERE key >= ?1 ORDER BY key DESC", NameOf(table));
  if (sqlite3_prepare_v2(db_, sql.c_str(), -1, &raw, nullptr) != SQLITE_OK)
    return FileError("read");
  const Statement statement(raw);
  BindText(raw, 1, from);
  int code = SQLITE_ROW;
  while ((code = sqlite3_step(raw)) == SQLITE_ROW) {
    if (!visit(Column(raw, 0), Column(raw, 1))) return OkStatus();
  }
  return code == SQLITE_DONE ? OkStatus() : FileError("read");
}

Status SqliteStore::Purge(Table table, int64_t before_us) {
  std::string sql = fmt::format("DELETE FROM {} WHERE time_us < {}", NameOf(table), before_us);
  if (table == Table::kEvents)
    sql += fmt::format(" AND key < (SELECT max(key) FROM {})", NameOf(table));
  return Run(sql.c_str());
}

StatusOr<std::string> SqliteStore::EdgeKey(Table table, const char* order) {
  sqlite3_stmt* raw = nullptr;
  const std::string sql =
      fmt::format("SELECT key FROM {} ORDER BY key {} LIMIT 1", NameOf(table), order);
  if (sqlite3_prepare_v2(db_, sql.c_str(), -1, &raw, nullptr) != SQLITE_OK)
    return FileError("read");
  const Statement statement(raw);
  const int code = sqlite3_step(raw);
  if (code == SQLITE_ROW) return std::string(Column(raw, 0));
  if (code == SQLITE_DONE) return std::string();
  return FileError("read");
}

StatusOr<std::string> SqliteStore::LastKey(Table table) { return EdgeKey(table, "DESC"); }

StatusOr<std::string> SqliteStore::FirstKey(Table table) { return EdgeKey(table, "ASC"); }

}  // namespace mt::daemon
