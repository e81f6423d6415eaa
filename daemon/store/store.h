// The coordinator's durable memory as the core sees it: a few tables of key and bytes, changed by
// batches that are on disk when Commit returns. One implementation for real (sqlite_store.h); tests
// bring their own to make commits fail.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace mt::daemon {

// Persistent: each is a table of the file (FORMAT.md).
enum class Table { kJobs, kOperations, kRequests, kEvents, kAllocations, kWorkers, kRendezvous };
inline constexpr int kNumTables = 7;

struct Write {
  Table table;
  std::string key;
  std::optional<std::string> value;  // nullopt: delete
  int64_t time_us = 0;               // Unix time; what retention goes by
};

class Store {
 public:
  virtual ~Store() = default;
  // All writes or none; synced to disk before it returns OK. After an error the caller's memory and
  // the disk differ: it must stop.
  virtual Status Commit(const std::vector<Write>& batch) = 0;
  // Calls `visit(key, value)` in key order; stops at its first error.
  using Visitor = std::function<Status(std::string_view key, std::string_view value)>;
  virtual Status ForEach(Table table, const Visitor& visit) = 0;
  // The rows with `from` <= key, in falling order of the keys; `visit` ends it by returning false.
  // An error of the store only.
  using Taker = std::function<bool(std::string_view key, std::string_view value)>;
  virtual Status ForEachNewest(Table table, const std::string& from, const Taker& visit) = 0;
  // Drops rows with an older time; of kEvents the newest row stays, whatever its time: numbers go
  // on from it.
  virtual Status Purge(Table table, int64_t before_us) = 0;
  // Greatest and least key, or "" for an empty table.
  virtual StatusOr<std::string> LastKey(Table table) = 0;
  virtual StatusOr<std::string> FirstKey(Table table) = 0;
};

}  // namespace mt::daemon
