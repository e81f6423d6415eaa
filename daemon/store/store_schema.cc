// Checksums are chained by seeds, so that no byte can move from one part of a row to another
// unnoticed.
#include "daemon/store/store_schema.h"

#include <array>
#include <sqlite3.h>
#include <xxhash.h>

#include "common/base/log.h"
#include "daemon/store/sqlite_statement.h"

namespace mt::daemon {
namespace {

constexpr int kApplicationId = 0x4d544350;  // "MTCP"
constexpr std::array<const char*, kNumTables> kTableNames = {
    "jobs", "operations", "requests", "events", "allocations", "workers", "rendezvous", "cluster"};

// The default is what ALTER TABLE asks for; no row keeps it.
constexpr char kSumColumn[] = "sum INTEGER NOT NULL DEFAULT 0";

std::string CreateTable(Table table) {
  return fmt::format(
      "CREATE TABLE {} (key TEXT PRIMARY KEY, value BLOB NOT NULL, time_us INTEGER NOT NULL, {}) "
      "WITHOUT ROWID;",
      TableName(table), kSumColumn);
}

uint64_t Chain(std::string_view bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

// SQL's row_sum(table number, key, value, time_us), for the migration.
void SqlRowSum(sqlite3_context* context, int /*count*/, sqlite3_value** values) {
  const auto bytes = [](sqlite3_value* value) {
    const void* data = sqlite3_value_blob(value);
    const int size = sqlite3_value_bytes(value);
    return size == 0 ? std::string_view()
                     : std::string_view(static_cast<const char*>(data), static_cast<size_t>(size));
  };
  const auto table = static_cast<Table>(sqlite3_value_int(values[0]));
  sqlite3_result_int64(context, RowSum(table, {.key = bytes(values[1]),
                                               .value = bytes(values[2]),
                                               .time_us = sqlite3_value_int64(values[3])}));
}

// From version 1, which had neither checksums nor the table `cluster`.
Status AddSums(sqlite3* db, const std::string& path) {
  ASSIGN_OR_RETURN(const std::string intact, FirstValue(db, path, "PRAGMA integrity_check(1)"));
  if (intact != "ok")
    return base::DataLoss("{}: the store is damaged ({}); {}", path, intact, kRestoreAdvice);
  if (sqlite3_create_function_v2(db, "row_sum", 4, SQLITE_UTF8 | SQLITE_DETERMINISTIC, nullptr,
                                 SqlRowSum, nullptr, nullptr, nullptr) != SQLITE_OK) {
    return SqliteError(db, path, "add a function");
  }
  std::string sql = "BEGIN IMMEDIATE;";
  for (size_t i = 0; i < kNumTables; ++i) {
    const auto table = static_cast<Table>(i);
    if (table == Table::kCluster) continue;
    sql += fmt::format(
        "ALTER TABLE {0} ADD COLUMN {1}; UPDATE {0} SET sum = row_sum({2}, key, value, time_us);",
        TableName(table), kSumColumn, i);
  }
  sql += CreateTable(Table::kCluster);
  sql += fmt::format("PRAGMA user_version={}; COMMIT;", kSchemaVersion);
  Status status = RunSql(db, path, sql);
  if (!status.ok()) sqlite3_exec(db, "ROLLBACK", nullptr, nullptr, nullptr);
  sqlite3_create_function_v2(db, "row_sum", 4, SQLITE_UTF8, nullptr, nullptr, nullptr, nullptr,
                             nullptr);
  if (status.ok()) log::Info("store: every row has a checksum now", {{"path", path}});
  return status;
}

// Keys are text, but damaged ones are whatever they became.
std::string Printable(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c >= ' ' && c <= '~') {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

}  // namespace

const char* TableName(Table table) { return kTableNames[static_cast<size_t>(table)]; }

int64_t RowSum(Table table, const StoredRow& row) {
  uint64_t sum = Chain(TableName(table), static_cast<uint64_t>(row.time_us));
  sum = Chain(row.key, sum);
  return static_cast<int64_t>(Chain(row.value, sum));
}

StatusOr<StoredRow> ReadRow(Table table, sqlite3_stmt* statement, const std::string& path) {
  const StoredRow row{.key = Column(statement, 0),
                      .value = Column(statement, 1),
                      .time_us = sqlite3_column_int64(statement, 2)};
  if (sqlite3_column_int64(statement, 3) == RowSum(table, row)) return row;
  return base::DataLoss(
      "{}: table {}, key '{}': the row is damaged, its checksum does not match; {}. "
      "`mt-coordinator "
      "check --state DIR` lists all that is damaged",
      path, TableName(table), Printable(row.key), kRestoreAdvice);
}

Status MakeTables(sqlite3* db, const std::string& path) {
  std::string sql = "BEGIN IMMEDIATE;";
  for (size_t i = 0; i < kNumTables; ++i) sql += CreateTable(static_cast<Table>(i));
  sql += fmt::format("PRAGMA application_id={}; PRAGMA user_version={}; COMMIT;", kApplicationId,
                     kSchemaVersion);
  return RunSql(db, path, sql);
}

Status MigrateTables(sqlite3* db, const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, FirstValue(db, path, "PRAGMA user_version"));
  const int version = std::stoi(text);
  if (version > kSchemaVersion) {
    return base::FailedPrecondition(
        "{} was written by a newer version (its schema is {}, this program knows {}); run the "
        "newer coordinator",
        path, version, kSchemaVersion);
  }
  if (version <= 0) {
    return base::DataLoss("{} is no store of a coordinator; {}", path, kRestoreAdvice);
  }
  return version == kSchemaVersion ? OkStatus() : AddSums(db, path);
}

}  // namespace mt::daemon
