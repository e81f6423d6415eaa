// Ledger's maps and the small functions on them; included by its two .cc files only.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "daemon/ledger/held_digests.h"
#include "daemon/ledger/ledger.h"

namespace mt::daemon {

// Key of the only row of the cluster table.
inline constexpr char kSelf[] = "self";

// nullptr: no such entry.
template <class Map, class Key>
auto FindIn(Map& map, const Key& key) -> decltype(map.begin()->second.get()) {
  const auto it = map.find(key);
  return it == map.end() ? nullptr : it->second.get();
}

struct Ledger::Tables {
  template <class Message>
  using ByText = std::map<std::string, std::unique_ptr<Message>, std::less<>>;

  ByText<v1::StoredJob> jobs;
  std::map<std::string, std::string, std::less<>> newest_by_name;  // "namespace/name" -> uid
  std::set<std::string> live;
  ByText<v1::StoredJob> deleted;  // tombstones
  ByText<v1::Operation> operations;
  // The names of operations that are not done, by target.
  std::map<std::string, std::set<std::string>, std::less<>> open_operations;
  ByText<v1::StoredRequest> requests;
  ByText<v1::StoredWorker> workers;
  ByText<v1::StoredAllocation> allocations;  // by KeyText
  HeldDigests held;                          // over `allocations`
  ByText<v1::StoredCluster> cluster;         // one row, kSelf
};

}  // namespace mt::daemon
