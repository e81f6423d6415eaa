// The store in one SQLite file in the state folder: write-ahead log, synchronous=FULL, a single
// writer, and a lock that is held as long as the process lives. Layout: FORMAT.md. Not thread-safe:
// the core's thread only. Calls block on the disk.
#pragma once

#include <memory>
#include <string>

#include "common/base/files.h"
#include "daemon/store/store.h"

struct sqlite3;

namespace mt::daemon {

class SqliteStore final : public Store {
 public:
  // Creates folder and file where they are missing, checks the file and creates the tables.
  // FailedPrecondition: another coordinator uses the folder, or a newer version wrote the file.
  // DataLoss: the file is damaged. PermissionDenied, ResourceExhausted or Internal where it cannot
  // be read or written.
  static StatusOr<std::unique_ptr<SqliteStore>> Open(const std::string& state_dir);
  ~SqliteStore() override;

  // See store.h. An error leaves the file at the last commit; after ResourceExhausted (no space, a
  // quota) the same batch may be tried again.
  Status Commit(const std::vector<Write>& batch) override;
  Status ForEach(Table table, const Visitor& visit) override;
  Status ForEachNewest(Table table, const std::string& from, const Taker& visit) override;
  Status Purge(Table table, int64_t before_us) override;
  StatusOr<std::string> LastKey(Table table) override;
  StatusOr<std::string> FirstKey(Table table) override;

 private:
  struct Statements;
  SqliteStore(base::Fd lock, std::string path);
  Status OpenFile();
  Status Migrate();
  Status Prepare();
  Status Run(const char* sql);
  Status Apply(const Write& write);
  StatusOr<std::string> EdgeKey(Table table, const char* order);
  Status FileError(std::string_view what) const;

  base::Fd lock_;  // flock on <state_dir>/coordinator.lock
  std::string path_;
  sqlite3* db_ = nullptr;
  std::unique_ptr<Statements> statements_;
};

}  // namespace mt::daemon
