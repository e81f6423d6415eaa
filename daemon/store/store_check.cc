// Each table is read on its own, so that damage in one does not hide that in others.
#include "daemon/store/store_check.h"

#include <sqlite3.h>

#include "daemon/store/sqlite_statement.h"
#include "daemon/store/store_schema.h"

namespace mt::daemon {
namespace {

void Add(const Status& status, StoreReport* report) {
  if (report->damages.size() < kMaxDamages) report->damages.push_back(base::Message(status));
}

Status CheckPages(sqlite3* db, const std::string& path, bool whole, StoreReport* report) {
  const std::string pragma =
      fmt::format("PRAGMA {}({})", whole ? "integrity_check" : "quick_check", kMaxDamages);
  ASSIGN_OR_RETURN(const Statement statement, PrepareSql(db, path, pragma));
  int code = SQLITE_ROW;
  while ((code = sqlite3_step(statement.get())) == SQLITE_ROW) {
    const std::string_view line = Column(statement.get(), 0);
    if (line != "ok") Add(base::DataLoss("{}: {}", path, line), report);
  }
  if (code != SQLITE_DONE) Add(SqliteError(db, path, "check"), report);
  return OkStatus();
}

void CheckRows(sqlite3* db, const std::string& path, Table table, StoreReport* report) {
  const auto statement =
      PrepareSql(db, path, fmt::format("SELECT {} FROM {}", kRowColumns, TableName(table)));
  if (!statement.ok()) return Add(statement.status(), report);
  int code = SQLITE_ROW;
  while ((code = sqlite3_step(statement->get())) == SQLITE_ROW) {
    const auto row = ReadRow(table, statement->get(), path);
    if (row.ok()) {
      ++report->rows;
    } else {
      Add(row.status(), report);
    }
  }
  if (code != SQLITE_DONE) Add(SqliteError(db, path, "read"), report);
}

}  // namespace

StatusOr<StoreReport> CheckDatabase(const std::string& path, bool whole) {
  ASSIGN_OR_RETURN(const Database db, OpenDatabase(path, SQLITE_OPEN_READWRITE));
  // Looking leaves the files as they are.
  sqlite3_db_config(db.get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  RETURN_IF_ERROR(RunSql(db.get(), path, "PRAGMA locking_mode=EXCLUSIVE"));
  StoreReport report;
  ASSIGN_OR_RETURN(const std::string version, FirstValue(db.get(), path, "PRAGMA user_version"));
  report.version = std::stoi(version);
  if (report.version < 1 || report.version > kSchemaVersion) {
    return base::FailedPrecondition("{}: no store, or of another version (its schema is {})", path,
                                    version);
  }
  RETURN_IF_ERROR(CheckPages(db.get(), path, whole, &report));
  if (report.version == 1) return report;
  for (size_t i = 0; i < kNumTables; ++i) CheckRows(db.get(), path, static_cast<Table>(i), &report);
  return report;
}

}  // namespace mt::daemon
