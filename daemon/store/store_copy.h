// A consistent copy of the store's database while the store goes on: pages are copied a few at a
// time between commits, and SQLite writes what changes meanwhile to both, so that the copy is the
// store as it is when the last step ends.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "common/base/status.h"
#include "daemon/store/sqlite_statement.h"

struct sqlite3_backup;

namespace mt::daemon {

// Made by SqliteStore::StartCopy, on whose thread it is used, and before which it ends.
class StoreCopy {
 public:
  StoreCopy(sqlite3* source, const std::string& source_path, std::string path);
  ~StoreCopy();
  StoreCopy(const StoreCopy&) = delete;
  StoreCopy& operator=(const StoreCopy&) = delete;

  // Copies for about `budget`, then returns whether the copy is complete. It is not synced to the
  // disk. After an error, or if it is destroyed before it is complete, what is at `path` is no
  // store.
  StatusOr<bool> Step(std::chrono::microseconds budget);

 private:
  Status Begin();

  sqlite3* source_;
  std::string source_path_;
  std::string path_;
  Database copy_;
  sqlite3_backup* backup_ = nullptr;
};

// Makes a complete copy one file: without the log that the store's mode asks for. Any thread.
Status SealCopy(const std::string& path);

}  // namespace mt::daemon
