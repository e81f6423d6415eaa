// Thin calls; the table of codes is SqliteError's.
#include "daemon/store/sqlite_statement.h"

#include <cerrno>
#include <sqlite3.h>

namespace mt::daemon {
namespace {

bool IsNoSpace(int error_number) { return error_number == ENOSPC || error_number == EDQUOT; }

}  // namespace

void CloseDatabase::operator()(sqlite3* db) const { sqlite3_close_v2(db); }

void FinalizeStatement::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Status SqliteError(sqlite3* db, const std::string& path, std::string_view what) {
  int code = db == nullptr ? SQLITE_NOMEM : sqlite3_errcode(db);
  // A quota, and file systems that tell of a full disk only when data is synced.
  if (code == SQLITE_IOERR && IsNoSpace(sqlite3_system_errno(db))) code = SQLITE_FULL;
  const char* why = db == nullptr ? "out of memory" : sqlite3_errmsg(db);
  switch (code) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return base::DataLoss("{}: the store is damaged ({}); {}", path, why, kRestoreAdvice);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
    case SQLITE_AUTH:
      return base::Error(absl::StatusCode::kPermissionDenied,
                         "{}: {} ({}); check the owner and mode of file and folder", path, what,
                         why);
    case SQLITE_FULL:
      return base::Error(absl::StatusCode::kResourceExhausted,
                         "{}: {} ({}); free space on this file system", path, what, why);
    case SQLITE_BUSY:
      return base::FailedPrecondition("{}: another process has this file open ({})", path, why);
    default:
      return base::Error(absl::StatusCode::kInternal, "{}: {} ({})", path, what, why);
  }
}

StatusOr<Database> OpenDatabase(const std::string& path, int flags) {
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &raw, flags | SQLITE_OPEN_NOMUTEX, nullptr);
  Database db(raw);
  if (code != SQLITE_OK) return SqliteError(raw, path, "open");
  sqlite3_extended_result_codes(raw, 0);
  return db;
}

Status RunSql(sqlite3* db, const std::string& path, const std::string& sql) {
  if (sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) return OkStatus();
  return SqliteError(db, path, sql);
}

StatusOr<Statement> PrepareSql(sqlite3* db, const std::string& path, const std::string& sql,
                               bool persistent) {
  sqlite3_stmt* raw = nullptr;
  const unsigned flags = persistent ? SQLITE_PREPARE_PERSISTENT : 0;
  if (sqlite3_prepare_v3(db, sql.c_str(), -1, flags, &raw, nullptr) != SQLITE_OK)
    return SqliteError(db, path, sql);
  return Statement(raw);
}

StatusOr<std::string> FirstValue(sqlite3* db, const std::string& path, const std::string& sql) {
  ASSIGN_OR_RETURN(const Statement statement, PrepareSql(db, path, sql));
  if (sqlite3_step(statement.get()) != SQLITE_ROW) return SqliteError(db, path, sql);
  return std::string(Column(statement.get(), 0));
}

std::string_view Column(sqlite3_stmt* statement, int index) {
  const void* data = sqlite3_column_blob(statement, index);
  const int bytes = sqlite3_column_bytes(statement, index);
  return bytes == 0 ? std::string_view()
                    : std::string_view(static_cast<const char*>(data), static_cast<size_t>(bytes));
}

void BindText(sqlite3_stmt* statement, int index, std::string_view text) {
  sqlite3_bind_text64(statement, index, text.data(), text.size(), SQLITE_STATIC, SQLITE_UTF8);
}

void BindBlob(sqlite3_stmt* statement, int index, std::string_view bytes) {
  sqlite3_bind_blob64(statement, index, bytes.data(), bytes.size(), SQLITE_STATIC);
}

}  // namespace mt::daemon
