// The tables of the store's file and the checksum that each row carries: what the disk or memory
// changed in a row is found when the row is read, and never believed. FORMAT.md. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "daemon/store/store.h"

struct sqlite3;
struct sqlite3_stmt;

namespace mt::daemon {

inline constexpr int kSchemaVersion = 2;  // PRAGMA user_version

const char* TableName(Table table);

// A row as it is stored.
struct StoredRow {
  std::string_view key;
  std::string_view value;
  int64_t time_us = 0;
};
// Its checksum: xxh3 over value, key, table and time.
int64_t RowSum(Table table, const StoredRow& row);

// Columns that ReadRow takes, in its order.
inline constexpr char kRowColumns[] = "key, value, time_us, sum";
// The row that the statement stands on; it lives until the statement moves on. DataLoss names the
// table and the key of a row whose checksum does not match.
StatusOr<StoredRow> ReadRow(Table table, sqlite3_stmt* statement, const std::string& path);

// Makes all tables in a database that has none, in one transaction.
Status MakeTables(sqlite3* db, const std::string& path);
// Takes a database of an earlier version to this one, in one transaction; OK where there is nothing
// to do. Version 1 had no checksums: the file is checked before its rows are given theirs.
// FailedPrecondition for a later version, DataLoss for a damaged file or one that is no store.
Status MigrateTables(sqlite3* db, const std::string& path);

}  // namespace mt::daemon
