// SQLite in the terms of this code: statements that finalize themselves, columns as bytes, and its
// error codes as Status that says what an operator can do. Not thread-safe, as SQLite is used here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace mt::daemon {

struct CloseDatabase {
  void operator()(sqlite3* db) const;
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;

struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const;
};
using Statement = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

// What to do about a damaged store, for the end of a message.
inline constexpr char kRestoreAdvice[] =
    "stop the coordinator, move the state folder aside and restore a backup (mt-coordinator "
    "restore "
    "--state DIR --from FILE)";

// The last error of `db` (nullptr: out of memory) as a Status: DataLoss for a damaged file,
// PermissionDenied, ResourceExhausted, FailedPrecondition where another process has it open, else
// Internal. `path` is the database's, `what` the attempt.
Status SqliteError(sqlite3* db, const std::string& path, std::string_view what);

// Opens an existing database; `flags` are those of sqlite3_open_v2.
StatusOr<Database> OpenDatabase(const std::string& path, int flags);
Status RunSql(sqlite3* db, const std::string& path, const std::string& sql);
StatusOr<Statement> PrepareSql(sqlite3* db, const std::string& path, const std::string& sql,
                               bool persistent = false);
// The first column of the first row, as text.
StatusOr<std::string> FirstValue(sqlite3* db, const std::string& path, const std::string& sql);

// The bytes live until the statement moves on.
std::string_view Column(sqlite3_stmt* statement, int index);
// `text` and `bytes` must live until the statement is reset.
void BindText(sqlite3_stmt* statement, int index, std::string_view text);
void BindBlob(sqlite3_stmt* statement, int index, std::string_view bytes);

}  // namespace mt::daemon
