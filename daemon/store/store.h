// The coordinator's durable state as the core sees it: tables of keys and bytes, changed in batches
// that are on disk when Commit returns. sqlite_store.h is the implementation in use; tests have
// others whose commits fail. Not thread-safe; calls block.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace mt::daemon {

// Tables of the file (FORMAT.md). Their order and names are persistent.
enum class Table {
  kJobs,
  kOperations,
  kRequests,
  kEvents,
  kAllocations,
  kWorkers,
  kRendezvous,
  kCluster
};
inline constexpr int kNumTables = 8;

// A change of one row.
struct Write {
  Table table;
  std::string key;
  std::optional<std::string> value;  // nullopt: delete the row
  int64_t time_us = 0;               // Unix time by which Purge decides
};

// Keys are ordered bytewise.
class Store {
 public:
  virtual ~Store() = default;
  // Applies all writes or none, and syncs before it returns OK. ResourceExhausted: there is no
  // space for it now; the same batch may be tried again. After any other error the caller's memory
  // and the disk differ, so the caller must stop.
  virtual Status Commit(const std::vector<Write>& batch) = 0;
  // Calls visit(key, value) for every row in ascending order of keys; stops at and returns visit's
  // first error.
  using Visitor = std::function<Status(std::string_view key, std::string_view value)>;
  virtual Status ForEach(Table table, const Visitor& visit) = 0;
  // Calls visit(key, value) for the rows with key >= `from` in descending order of keys, until it
  // returns false. Returns only errors of the store.
  using Taker = std::function<bool(std::string_view key, std::string_view value)>;
  virtual Status ForEachNewest(Table table, const std::string& from, const Taker& visit) = 0;
  // Deletes the rows whose time is before `before_us`. In kEvents the newest row stays whatever its
  // time, because the numbering of events continues from it.
  virtual Status Purge(Table table, int64_t before_us) = 0;
  // The greatest and the least key, or "" for an empty table.
  virtual StatusOr<std::string> LastKey(Table table) = 0;
  virtual StatusOr<std::string> FirstKey(Table table) = 0;
};

}  // namespace mt::daemon
