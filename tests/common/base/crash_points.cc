// A thread syncs a folder after what it has changed there itself.
#include "tests/common/base/crash_points.h"

#include <algorithm>

namespace mt::crash {
namespace {

using Kind = Operation::Kind;

std::string FolderOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? "" : path.substr(0, slash));
}

}  // namespace

void OperationNames::Changed(const Operation& operation, const std::string& path,
                             const std::string& name) {
  changes_[{operation.thread, FolderOf(path)}] = name;
}

std::string OperationNames::Next(const Operation& operation) {
  const std::string& path = operation.path;
  const auto of = [this](std::string_view what, const std::string& at) {
    return std::string(what) + " " + role_of_(at);
  };
  std::string name;
  switch (operation.kind) {
    case Kind::kCreate:
      name = of("create", path);
      break;
    case Kind::kMakeFolder:
      name = of("make", path);
      break;
    case Kind::kRename:
      name = of("rename", operation.to);
      Changed(operation, operation.to, name);
      break;
    case Kind::kLink:
      name = of("link", operation.to);
      Changed(operation, operation.to, name);
      break;
    case Kind::kRemove:
      name = of("remove", path);
      break;
    case Kind::kSync: {
      const auto change = changes_.find({operation.thread, path});
      return of("sync", path) + (change == changes_.end() ? "" : " after " + change->second);
    }
    case Kind::kWrite:
      return of("write", path);
    case Kind::kOpen:
      return of("open", path);
    case Kind::kRead:
      return of("read", path);
    case Kind::kMark:
      return "at " + path;
  }
  Changed(operation, path, name);
  return name;
}

std::vector<std::string> NamesOf(const std::vector<Operation>& operations, const RoleOf& role_of) {
  OperationNames in_order(role_of);
  std::vector<std::string> names;
  std::map<std::string, std::vector<size_t>> writes;  // by path, since it was made
  const auto place = [&names](const std::vector<size_t>& of_file) {
    if (of_file.size() < 2) return;
    for (const size_t at : of_file) {
      names[at] += at == of_file.front() ? ", first" : at == of_file.back() ? ", last" : ", middle";
    }
  };
  for (size_t i = 0; i < operations.size(); ++i) {
    names.push_back(in_order.Next(operations[i]));
    std::vector<size_t>& of_file = writes[operations[i].path];
    if (operations[i].kind == Kind::kCreate) {
      place(of_file);
      of_file.clear();
    }
    if (operations[i].kind == Kind::kWrite) of_file.push_back(i);
  }
  for (const auto& [path, of_file] : writes) place(of_file);
  return names;
}

}  // namespace mt::crash
