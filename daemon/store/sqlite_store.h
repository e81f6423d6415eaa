// The store in one SQLite file in the state folder: write-ahead log, synchronous=FULL, a single
// writer, and a lock that is held as long as the process lives. Layout: FORMAT.md. Not thread-safe:
// the core's thread only. Calls block on the disk.
#pragma once

#include <memory>
#include <string>

#include "common/base/files.h"
#include "daemon/store/sqlite_statement.h"
#include "daemon/store/store.h"
#include "daemon/store/store_copy.h"

namespace mt::daemon {

class SqliteStore final : public Store {
 public:
  // Makes a store without rows, and its folder (0700) where that is missing. FailedPrecondition
  // where there is one already, or a trace of one; nothing is changed then. A store is there as a
  // whole or not at all, whatever ends the process.
  static Status Create(const std::string& state_dir);
  // Opens the store that is there, and never makes one: a folder without a store is a missing mount
  // more often than a new cluster. FailedPrecondition: no store, another coordinator uses the
  // folder, or a newer version wrote the file. DataLoss: the file is damaged. PermissionDenied,
  // ResourceExhausted or Internal where it cannot be read or written.
  static StatusOr<std::unique_ptr<SqliteStore>> Open(const std::string& state_dir);
  ~SqliteStore() override;

  // A copy of the database to a new file at `path`, to be made step by step between commits.
  std::unique_ptr<StoreCopy> StartCopy(const std::string& path);

  // See store.h. An error leaves the file at the last commit; after ResourceExhausted (no space, a
  // quota) the same batch may be tried again. Reading a row whose checksum does not match is
  // DataLoss, with its table and key.
  Status Commit(const std::vector<Write>& batch) override;
  Status ForEach(Table table, const Visitor& visit) override;
  Status ForEachNewest(Table table, const std::string& from, const Taker& visit) override;
  Status Purge(Table table, int64_t before_us) override;
  StatusOr<std::string> LastKey(Table table) override;
  StatusOr<std::string> FirstKey(Table table) override;

 private:
  struct Statements;
  SqliteStore(base::Fd lock, std::string path);
  Status PrepareWrites();
  Status Apply(const Write& write);
  // Visits the rows that `clause` selects; `from` is its ?1 where it is not empty.
  Status Read(Table table, const std::string& clause, const std::string& from,
              const Visitor& visit);
  StatusOr<std::string> EdgeKey(Table table, const char* order);
  Status Error(std::string_view what) const { return SqliteError(db_.get(), path_, what); }

  base::Fd lock_;  // flock on <state_dir>/coordinator.lock
  std::string path_;
  Database db_;
  std::unique_ptr<Statements> statements_;
};

}  // namespace mt::daemon
