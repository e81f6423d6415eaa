// Prepared statements for writes; every row is written with its checksum and read against it.
#include "daemon/store/sqlite_store.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/store/store_folder.h"
#include "daemon/store/store_schema.h"

namespace mt::daemon {

struct SqliteStore::Statements {
  Statement begin;
  Statement commit;
  std::array<Statement, kNumTables> put;
  std::array<Statement, kNumTables> erase;
};

SqliteStore::SqliteStore(base::Fd lock, std::string path)
    : lock_(std::move(lock)), path_(std::move(path)) {}

SqliteStore::~SqliteStore() = default;

Status SqliteStore::Create(const std::string& state_dir) {
  RETURN_IF_ERROR(CheckNoStore(state_dir));
  const bool made = !base::Exists(state_dir);
  RETURN_IF_ERROR(base::MakeDirs(state_dir));
  if (made && chmod(state_dir.c_str(), 0700) != 0)
    return base::ErrnoError(errno, "chmod " + state_dir);
  ASSIGN_OR_RETURN(base::Fd lock, LockStoreFolder(state_dir));
  RETURN_IF_ERROR(CheckNoStore(state_dir));
  const std::string path = base::JoinPath(state_dir, kDatabaseFile);
  // Of an init that was interrupted.
  const std::string fresh = path + ".new";
  unlink(fresh.c_str());
  const base::Fd file(open(fresh.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return base::ErrnoError(errno, "create " + fresh);
  {
    ASSIGN_OR_RETURN(const Database db, OpenDatabase(fresh, SQLITE_OPEN_READWRITE));
    RETURN_IF_ERROR(MakeTables(db.get(), fresh));
  }
  if (fsync(file.get()) != 0) return base::ErrnoError(errno, "fsync " + fresh);
  if (rename(fresh.c_str(), path.c_str()) != 0) return base::ErrnoError(errno, "rename " + fresh);
  return base::SyncDir(state_dir);
}

StatusOr<std::unique_ptr<SqliteStore>> SqliteStore::Open(const std::string& state_dir) {
  RETURN_IF_ERROR(CheckStoreFolder(state_dir));
  ASSIGN_OR_RETURN(base::Fd lock, LockStoreFolder(state_dir));
  CloseToOthers(state_dir);
  std::unique_ptr<SqliteStore> store(
      new SqliteStore(std::move(lock), base::JoinPath(state_dir, kDatabaseFile)));
  ASSIGN_OR_RETURN(store->db_, OpenDatabase(store->path_, SQLITE_OPEN_READWRITE));
  for (const char* pragma :
       {"PRAGMA locking_mode=EXCLUSIVE", "PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL"}) {
    RETURN_IF_ERROR(RunSql(store->db_.get(), store->path_, pragma));
  }
  RETURN_IF_ERROR(MigrateTables(store->db_.get(), store->path_));
  RETURN_IF_ERROR(store->PrepareWrites());
  RETURN_IF_ERROR(base::SyncDir(state_dir));
  return store;
}

std::unique_ptr<StoreCopy> SqliteStore::StartCopy(const std::string& path) {
  return std::make_unique<StoreCopy>(db_.get(), path_, path);
}

Status SqliteStore::PrepareWrites() {
  statements_ = std::make_unique<Statements>();
  const auto prepare = [this](const std::string& sql) {
    return PrepareSql(db_.get(), path_, sql, /*persistent=*/true);
  };
  ASSIGN_OR_RETURN(statements_->begin, prepare("BEGIN IMMEDIATE"));
  ASSIGN_OR_RETURN(statements_->commit, prepare("COMMIT"));
  for (size_t i = 0; i < kNumTables; ++i) {
    const char* table = TableName(static_cast<Table>(i));
    ASSIGN_OR_RETURN(statements_->put[i],
                     prepare(fmt::format(
                         "INSERT INTO {} ({}) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (key) DO UPDATE "
                         "SET value = excluded.value, time_us = excluded.time_us, sum = "
                         "excluded.sum",
                         table, kRowColumns)));
    ASSIGN_OR_RETURN(statements_->erase[i],
                     prepare(fmt::format("DELETE FROM {} WHERE key = ?1", table)));
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
    sqlite3_bind_int64(
        statement, 4,
        RowSum(write.table, {.key = write.key, .value = *write.value, .time_us = write.time_us}));
  }
  const int code = sqlite3_step(statement);
  Status status = code == SQLITE_DONE ? OkStatus() : Error("write");
  sqlite3_reset(statement);
  sqlite3_clear_bindings(statement);
  return status;
}

Status SqliteStore::Commit(const std::vector<Write>& batch) {
  const auto step = [this](sqlite3_stmt* statement) {
    Status status = sqlite3_step(statement) == SQLITE_DONE ? OkStatus() : Error("commit");
    sqlite3_reset(statement);
    return status;
  };
  RETURN_IF_ERROR(step(statements_->begin.get()));
  for (const Write& write : batch) {
    Status status = Apply(write);
    if (status.ok()) continue;
    sqlite3_exec(db_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
    return status;
  }
  Status status = step(statements_->commit.get());
  if (!status.ok()) sqlite3_exec(db_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
  return status;
}

Status SqliteStore::Read(Table table, const std::string& clause, const std::string& from,
                         const Visitor& visit) {
  ASSIGN_OR_RETURN(
      const Statement statement,
      PrepareSql(db_.get(), path_,
                 fmt::format("SELECT {} FROM {} {}", kRowColumns, TableName(table), clause)));
  if (!from.empty()) BindText(statement.get(), 1, from);
  int code = SQLITE_ROW;
  while ((code = sqlite3_step(statement.get())) == SQLITE_ROW) {
    ASSIGN_OR_RETURN(const StoredRow row, ReadRow(table, statement.get(), path_));
    RETURN_IF_ERROR(visit(row.key, row.value));
  }
  return code == SQLITE_DONE ? OkStatus() : Error("read");
}

Status SqliteStore::ForEach(Table table, const Visitor& visit) {
  return Read(table, "ORDER BY key", "", [&](std::string_view key, std::string_view value) {
    const Status status = visit(key, value);
    return status.ok() ? status
                       : base::Annotate(status, fmt::format("{}: table {}, key '{}'", path_,
                                                            TableName(table), key));
  });
}

Status SqliteStore::ForEachNewest(Table table, const std::string& from, const Taker& visit) {
  bool stopped = false;
  const Status status =
      Read(table, from.empty() ? "ORDER BY key DESC" : "WHERE key >= ?1 ORDER BY key DESC", from,
           [&](std::string_view key, std::string_view value) {
             stopped = !visit(key, value);
             return stopped ? base::Error(absl::StatusCode::kCancelled, "enough") : OkStatus();
           });
  return stopped ? OkStatus() : status;
}

Status SqliteStore::Purge(Table table, int64_t before_us) {
  std::string sql = fmt::format("DELETE FROM {} WHERE time_us < {}", TableName(table), before_us);
  if (table == Table::kEvents)
    sql += fmt::format(" AND key < (SELECT max(key) FROM {})", TableName(table));
  return RunSql(db_.get(), path_, sql);
}

StatusOr<std::string> SqliteStore::EdgeKey(Table table, const char* order) {
  std::string edge;
  RETURN_IF_ERROR(Read(table, fmt::format("ORDER BY key {} LIMIT 1", order), "",
                       [&edge](std::string_view key, std::string_view) {
                         edge = key;
                         return OkStatus();
                       }));
  return edge;
}

StatusOr<std::string> SqliteStore::LastKey(Table table) { return EdgeKey(table, "DESC"); }

StatusOr<std::string> SqliteStore::FirstKey(Table table) { return EdgeKey(table, "ASC"); }

}  // namespace mt::daemon
