// Names of a log's operations, so that a crash or a fault is put where somebody can say it: what is
// done to which kind of file, "write shard", and of a folder's sync which change it is for, "sync
// directory after rename fence".
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/common/base/crash_log.h"

namespace mt::crash {

// What kind of file or folder lies at a path relative to the log's root: "shard".
using RoleOf = std::function<std::string(std::string_view path)>;

// Names operations as they come. Not thread-safe.
class OperationNames {
 public:
  explicit OperationNames(RoleOf role_of) : role_of_(std::move(role_of)) {}
  // In the order in which things happen; an operation that then fails does no harm. "at NAME" of a
  // mark.
  std::string Next(const Operation& operation);

 private:
  void Changed(const Operation& operation, const std::string& path, const std::string& name);

  const RoleOf role_of_;
  // The last change of an entry, by thread and folder.
  std::map<std::pair<int, std::string>, std::string> changes_;
};

// Of all operations. Where a file is written more than once, "write shard" is "..., first", "...,
// middle" or "..., last".
std::vector<std::string> NamesOf(const std::vector<Operation>& operations, const RoleOf& role_of);

}  // namespace mt::crash
