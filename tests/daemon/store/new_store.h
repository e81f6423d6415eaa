// A store for tests: made where the folder has none, as an operator does once, and opened.
#pragma once

#include <memory>
#include <string>

#include "daemon/store/sqlite_store.h"
#include "daemon/store/store_folder.h"

namespace mt::daemon {

inline StatusOr<std::unique_ptr<SqliteStore>> OpenOrMakeStore(const std::string& folder) {
  if (CheckNoStore(folder).ok()) RETURN_IF_ERROR(SqliteStore::Create(folder));
  return SqliteStore::Open(folder);
}

}  // namespace mt::daemon
