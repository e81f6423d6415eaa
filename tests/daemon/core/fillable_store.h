// A store whose disk is full for a while: commits are refused as SQLite refuses them, and what was
// written before stays readable.
#pragma once

#include <string>
#include <vector>

#include "tests/daemon/core/memory_store.h"

namespace mt::daemon {

class FillableStore final : public MemoryStore {
 public:
  Status Commit(const std::vector<Write>& batch) override {
    ++commits;
    if (full) return base::Error(absl::StatusCode::kResourceExhausted, "state: disk full");
    return MemoryStore::Commit(batch);
  }
  Status Purge(Table table, int64_t before_us) override {
    if (full) return base::Error(absl::StatusCode::kResourceExhausted, "state: disk full");
    return MemoryStore::Purge(table, before_us);
  }
  bool Has(Table table, const std::string& key) {
    bool found = false;
    const Status read = ForEach(table, [&](std::string_view row, std::string_view) {
      found |= row == key;
      return OkStatus();
    });
    return read.ok() && found;
  }

  bool full = false;
  int commits = 0;
};

}  // namespace mt::daemon
