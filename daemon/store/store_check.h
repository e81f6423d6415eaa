// Whether a database of the store is whole: SQLite's own check of its pages, and the checksum of
// every row. It reads everything, so it is not on the coordinator's way to its start. Functions
// block on the disk and are thread-safe, where no other program has the file open.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace mt::daemon {

struct StoreReport {
  int version = 0;   // of the schema; version 1 has no checksums
  int64_t rows = 0;  // that were read and are whole
  // What is damaged, at most kMaxDamages; empty: the store is whole.
  std::vector<std::string> damages;
};
inline constexpr size_t kMaxDamages = 20;

// `whole` has indexes checked against tables as well, which takes longer. Errors where the file
// cannot be opened or read at all. A write-ahead log beside it is taken into account and stays.
StatusOr<StoreReport> CheckDatabase(const std::string& path, bool whole);

}  // namespace mt::daemon
