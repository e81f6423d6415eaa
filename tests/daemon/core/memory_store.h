// A Store without a disk, for tests that restart the coordinator thousands of times.
#pragma once

#include <array>
#include <map>
#include <string>
#include <utility>

#include "daemon/store/store.h"

namespace mt::daemon {

class MemoryStore : public Store {
 public:
  Status Commit(const std::vector<Write>& batch) override {
    for (const Write& write : batch) {
      auto& table = tables_[static_cast<size_t>(write.table)];
      if (write.value.has_value()) {
        table[write.key] = {*write.value, write.time_us};
      } else {
        table.erase(write.key);
      }
    }
    return OkStatus();
  }
  Status ForEach(Table table, const Visitor& visit) override {
    for (const auto& [key, row] : Rows(table)) RETURN_IF_ERROR(visit(key, row.first));
    return OkStatus();
  }
  Status ForEachNewest(Table table, const std::string& from, const Taker& visit) override {
    const auto& rows = Rows(table);
    for (auto it = rows.rbegin(); it != rows.rend() && it->first >= from; ++it) {
      if (!visit(it->first, it->second.first)) break;
    }
    return OkStatus();
  }
  Status Purge(Table table, int64_t before_us) override {
    auto& rows = tables_[static_cast<size_t>(table)];
    std::erase_if(rows, [&](const auto& row) {
      return row.second.second < before_us &&
             (table != Table::kEvents || row.first != rows.rbegin()->first);
    });
    return OkStatus();
  }
  StatusOr<std::string> LastKey(Table table) override {
    return Rows(table).empty() ? std::string() : Rows(table).rbegin()->first;
  }
  StatusOr<std::string> FirstKey(Table table) override {
    return Rows(table).empty() ? std::string() : Rows(table).begin()->first;
  }

 private:
  using TableRows = std::map<std::string, std::pair<std::string, int64_t>>;
  const TableRows& Rows(Table table) const { return tables_[static_cast<size_t>(table)]; }
  std::array<TableRows, kNumTables> tables_;
};

}  // namespace mt::daemon
