// Recording, and the questions to a log that is complete; what a crash leaves is crash_replay.cc.
#include "tests/common/base/crash_log.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <utility>

#include "common/base/check.h"
#include "tests/common/base/crash_replay.h"

namespace mt::crash {
namespace {

using Kind = Operation::Kind;

std::atomic<CrashLog*> g_recording{nullptr};

Content Make(std::string bytes) { return std::make_shared<const std::string>(std::move(bytes)); }

}  // namespace

CrashLog::CrashLog(std::string root) : root_(std::move(root)), before_(ReadTree(root_)) {
  CrashLog* none = nullptr;
  CHECK(g_recording.compare_exchange_strong(none, this)) << "another log records";
}

CrashLog::~CrashLog() { Stop(); }

void CrashLog::Stop() {
  const std::lock_guard lock(mutex_);
  if (recording_) g_recording = nullptr;
  recording_ = false;
}

void CrashLog::Mark(std::string_view name) {
  const std::lock_guard lock(mutex_);
  Add({.kind = Kind::kMark, .path = std::string(name)});
}

size_t CrashLog::Before(std::string_view mark) const {
  const auto at = std::find_if(operations_.begin(), operations_.end(), [&](const Operation& op) {
    return op.kind == Kind::kMark && op.path == mark;
  });
  CHECK(at != operations_.end()) << "no mark " << mark;
  return static_cast<size_t>(at - operations_.begin());
}

Replay CrashLog::ReplayOf(size_t count) const {
  Replay replay(before_);
  for (size_t i = 0; i < count; ++i) replay.Add(operations_[i]);
  return replay;
}

std::vector<Tree> CrashLog::Outcomes(size_t count) const { return ReplayOf(count).Outcomes(); }

std::string CrashLog::FirstComplaint(
    size_t from, size_t to, const std::string& scratch,
    const std::function<std::string(const std::string& folder)>& read) const {
  std::set<Tree> done;
  Replay replay = ReplayOf(from);
  for (size_t count = from; count <= to; ++count) {
    if (count > from) replay.Add(operations_[count - 1]);
    for (const Tree& tree : replay.Outcomes()) {
      if (!done.insert(tree).second) continue;
      WriteTree(tree, scratch);
      const std::string complaint = read(scratch);
      if (complaint.empty()) continue;
      std::string text = complaint + "\nafter a crash at the end of:\n";
      for (size_t i = 0; i < count; ++i) text += "  " + Describe(operations_[i]) + "\n";
      return text + "which left:\n" + Describe(tree);
    }
  }
  return "";
}

Tree CrashLog::Live(size_t count) const { return ReplayOf(count).Live(); }

bool CrashLog::IsDurable(size_t count, std::string_view path) const {
  return ReplayOf(count).IsDurable(path);
}

std::string CrashLog::Check() const {
  const Tree seen = Live(operations_.size()), disk = ReadTree(root_);
  for (const auto& [path, content] : disk) {
    const auto at = seen.find(path);
    if (at == seen.end()) return path + " was made unseen";
    if ((at->second == nullptr) != (content == nullptr)) return path + " changed its type";
    if (content != nullptr && *at->second != *content) return path + " was written unseen";
  }
  for (const auto& [path, content] : seen) {
    if (!disk.contains(path)) return path + " was removed unseen";
  }
  return "";
}

bool CrashLog::Covers(const std::string& absolute, std::string* relative) const {
  if (absolute == root_) {
    relative->clear();
    return true;
  }
  if (!absolute.starts_with(root_ + "/")) return false;
  *relative = absolute.substr(root_.size() + 1);
  return true;
}

CrashLog* Recording() { return g_recording.load(); }

Tree ReadTree(const std::string& folder) {
  Tree tree;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string path = entry.path().string().substr(folder.size() + 1);
    if (entry.is_directory()) {
      tree[path] = nullptr;
    } else if (entry.is_regular_file()) {
      std::ifstream in(entry.path(), std::ios::binary);
      tree[path] = Make({std::istreambuf_iterator<char>(in), {}});
    }
  }
  return tree;
}

void WriteTree(const Tree& tree, const std::string& folder) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  for (const auto& [path, content] : tree) {
    const std::string at = folder + "/" + path;
    if (content == nullptr) {
      std::filesystem::create_directory(at);
    } else {
      std::ofstream(at, std::ios::binary) << *content;
    }
  }
}

std::string Describe(const Tree& tree) {
  std::string text;
  for (const auto& [path, content] : tree) {
    text += "  " + path;
    text += content == nullptr ? "/\n" : ": " + std::to_string(content->size()) + " bytes\n";
  }
  return text.empty() ? "  nothing\n" : text;
}

std::string Describe(const Operation& operation) {
  const std::string& path = operation.path;
  switch (operation.kind) {
    case Kind::kCreate:
      return "create " + path;
    case Kind::kMakeFolder:
      return "mkdir " + path;
    case Kind::kWrite:
      return "write " + path + " (now " + std::to_string(operation.content->size()) + " bytes)";
    case Kind::kSync:
      return "sync " + (path.empty() ? "." : path);
    case Kind::kRename:
      return "rename " + path + " to " + operation.to;
    case Kind::kLink:
      return "link " + path + " to " + operation.to;
    case Kind::kRemove:
      return "remove " + path;
    case Kind::kMark:
      return "-- " + path;
    case Kind::kOpen:
      return "open " + path;
    case Kind::kRead:
      return "read " + path;
  }
  return "";
}

}  // namespace mt::crash
