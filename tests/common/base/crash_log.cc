// The replay of a log: every node of the tree with its bytes and entries, as the running system
// sees them and as far as they are durable, and the choices among what is neither.
#include "tests/common/base/crash_log.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "common/base/check.h"

namespace mt::crash {
namespace {

using Kind = Operation::Kind;

std::atomic<CrashLog*> g_recording{nullptr};

Content Make(std::string bytes) { return std::make_shared<const std::string>(std::move(bytes)); }

// Which entries that are uncertain are there, as described at Outcomes.
std::vector<std::vector<bool>> Choices(size_t uncertain) {
  constexpr size_t kAllSubsets = 4;
  std::vector<std::vector<bool>> choices;
  if (uncertain <= kAllSubsets) {
    for (size_t bits = 0; bits < size_t{1} << uncertain; ++bits) {
      choices.emplace_back();
      for (size_t i = 0; i < uncertain; ++i) choices.back().push_back(((bits >> i) & 1) != 0);
    }
    return choices;
  }
  for (size_t n = 0; n <= uncertain; ++n) {
    choices.emplace_back(uncertain, false);
    std::fill_n(choices.back().begin(), n, true);
  }
  for (size_t i = 0; i < uncertain; ++i) {
    for (const bool others : {false, true}) {
      choices.emplace_back(uncertain, others);
      choices.back()[i] = !others;
    }
  }
  return choices;
}

// What may be left of bytes that were not synced.
enum class Loss { kOld, kNew, kHalf, kZeros };

}  // namespace

// The state of all files and folders after the first operations of a log: as the running system
// sees it, and as far as it is certain to survive.
class CrashLog::Replay {
 public:
  Replay(const Tree& before, const std::vector<Operation>& operations, size_t count) {
    nodes_.push_back({.folder = true});
    for (const auto& [path, content] : before) {
      const auto [parent, name] = Split(path);
      const size_t node = NewNode(content == nullptr, content);
      nodes_[parent].entries[name] = nodes_[parent].durable_entries[name] = node;
    }
    for (size_t i = 0; i < count; ++i) Apply(operations[i]);
  }

  Tree Live() const {
    Tree tree;
    Walk(
        0, "", [](const Node& node) -> const Entries& { return node.entries; },
        [](size_t, const Node& node) { return node.data; }, &tree);
    return tree;
  }

  std::vector<Tree> Outcomes() {
    std::set<Tree> outcomes;
    for (const std::vector<bool>& choice : Choices(uncertain_.size())) {
      std::vector<Entries> folders;
      for (const Node& node : nodes_) folders.push_back(node.durable_entries);
      for (size_t i = 0; i < choice.size(); ++i) {
        if (!choice[i]) continue;
        for (const Change& change : uncertain_[i].changes) Carry(change, &folders[change.folder]);
      }
      for (const Loss loss : {Loss::kOld, Loss::kNew, Loss::kHalf, Loss::kZeros}) {
        outcomes.insert(Left(folders, [&](size_t) { return loss; }));
      }
      for (size_t n = 0; n < nodes_.size(); ++n) {
        if (nodes_[n].data == nodes_[n].durable) continue;
        outcomes.insert(Left(folders, [&](size_t m) { return m == n ? Loss::kOld : Loss::kNew; }));
      }
    }
    return {outcomes.begin(), outcomes.end()};
  }

  bool IsDurable(std::string_view path) {
    const auto [parent, name] = Split(path);
    const auto live = nodes_[parent].entries.find(name);
    const auto durable = nodes_[parent].durable_entries.find(name);
    return live != nodes_[parent].entries.end() &&
           durable != nodes_[parent].durable_entries.end() && live->second == durable->second &&
           nodes_[live->second].data == nodes_[live->second].durable;
  }

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);
  using Entries = std::map<std::string, size_t>;
  struct Node {
    bool folder = false;
    Content data = nullptr, durable = nullptr;  // of files
    Entries entries, durable_entries;           // of folders
  };
  struct Change {
    size_t folder;
    std::string name;
    size_t node;  // kNone: the entry goes
  };
  // The effect of one operation on entries: as a whole or not at all.
  struct Uncertain {
    std::vector<Change> changes;
    std::set<size_t> unsynced;  // folders
  };

  static void Carry(const Change& change, Entries* entries) {
    if (change.node == kNone) {
      entries->erase(change.name);
    } else {
      (*entries)[change.name] = change.node;
    }
  }

  size_t NewNode(bool folder, Content content) {
    nodes_.push_back({.folder = folder, .data = content, .durable = content});
    return nodes_.size() - 1;
  }

  // Node of a path, or kNone.
  size_t Find(std::string_view path) const {
    size_t node = 0;
    while (!path.empty() && node != kNone) {
      const size_t slash = std::min(path.find('/'), path.size());
      const auto entry = nodes_[node].entries.find(std::string(path.substr(0, slash)));
      node = entry == nodes_[node].entries.end() ? kNone : entry->second;
      path.remove_prefix(std::min(slash + 1, path.size()));
    }
    return node;
  }
  std::pair<size_t, std::string> Split(std::string_view path) const {
    const size_t slash = path.rfind('/');
    const bool top = slash == std::string_view::npos;
    const size_t parent = top ? 0 : Find(path.substr(0, slash));
    CHECK(parent != kNone) << "no folder for " << path;
    return {parent, std::string(top ? path : path.substr(slash + 1))};
  }

  void Enter(std::vector<Change> changes) {
    Uncertain effect{.changes = std::move(changes), .unsynced = {}};
    for (const Change& change : effect.changes) {
      Carry(change, &nodes_[change.folder].entries);
      effect.unsynced.insert(change.folder);
    }
    uncertain_.push_back(std::move(effect));
  }

  void Sync(size_t synced) {
    nodes_[synced].durable = nodes_[synced].data;
    if (!nodes_[synced].folder) return;
    for (Uncertain& effect : uncertain_) {
      effect.unsynced.erase(synced);
      if (!effect.unsynced.empty()) continue;
      for (const Change& change : effect.changes) {
        Carry(change, &nodes_[change.folder].durable_entries);
      }
    }
    std::erase_if(uncertain_, [](const Uncertain& effect) { return effect.unsynced.empty(); });
  }

  void Apply(const Operation& operation) {
    const size_t node = operation.kind == Kind::kMark ? kNone : Find(operation.path);
    switch (operation.kind) {
      case Kind::kMark:
        return;
      case Kind::kWrite:
        if (node != kNone) nodes_[node].data = operation.content;
        return;
      case Kind::kSync:
        if (node != kNone) Sync(node);
        return;
      default:
        break;
    }
    const auto [parent, name] = Split(operation.path);
    if (operation.kind == Kind::kCreate || operation.kind == Kind::kMakeFolder) {
      const bool folder = operation.kind == Kind::kMakeFolder;
      Enter({{parent, name, NewNode(folder, folder ? nullptr : Make(""))}});
      return;
    }
    CHECK(node != kNone) << Describe(operation) << ": not in the log";
    std::vector<Change> changes;
    if (operation.kind != Kind::kLink) changes.push_back({parent, name, kNone});
    if (operation.kind != Kind::kRemove) {
      const auto [to_parent, to_name] = Split(operation.to);
      changes.push_back({to_parent, to_name, node});
    }
    Enter(std::move(changes));
  }

  template <class EntriesOf, class ContentOf>
  void Walk(size_t folder, const std::string& prefix, const EntriesOf& entries_of,
            const ContentOf& content_of, Tree* tree) const {
    for (const auto& [name, node] : entries_of(nodes_[folder])) {
      const Node& at = nodes_[node];
      tree->emplace(prefix + name, at.folder ? nullptr : content_of(node, at));
      if (at.folder) Walk(node, prefix + name + "/", entries_of, content_of, tree);
    }
  }

  Tree Left(const std::vector<Entries>& folders, const std::function<Loss(size_t)>& loss) {
    Tree tree;
    Walk(
        0, "",
        [&](const Node& node) -> const Entries& {
          return folders[static_cast<size_t>(&node - nodes_.data())];
        },
        [&](size_t n, const Node& node) {
          return node.data == node.durable ? node.data : Mixed(node, loss(n));
        },
        &tree);
    return tree;
  }

  // Equal mixtures are one object, so that equal trees compare equal.
  Content Mixed(const Node& node, Loss loss) {
    if (loss == Loss::kNew) return node.data;
    if (loss == Loss::kOld || *node.data == *node.durable) return node.durable;
    Content& mixed = mixed_[{node.data, node.durable, loss == Loss::kHalf}];
    if (mixed != nullptr) return mixed;
    const std::string& now = *node.data;
    std::string bytes = *node.durable;
    const auto changed = static_cast<size_t>(
        std::mismatch(now.begin(), now.end(), bytes.begin(), bytes.end()).first - now.begin());
    const size_t kept = loss == Loss::kHalf ? changed + (now.size() - changed + 1) / 2 : changed;
    bytes.replace(0, std::min(kept, bytes.size()), now, 0, kept);
    if (loss == Loss::kZeros) bytes.replace(kept, std::string::npos, now.size() - kept, '\0');
    mixed = Make(std::move(bytes));
    return mixed;
  }

  std::vector<Node> nodes_;  // the first is the root
  std::vector<Uncertain> uncertain_;
  std::map<std::tuple<Content, Content, bool>, Content> mixed_;
};

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

std::vector<Tree> CrashLog::Outcomes(size_t count) const {
  return Replay(before_, operations_, count).Outcomes();
}

std::string CrashLog::FirstComplaint(
    size_t from, size_t to, const std::string& scratch,
    const std::function<std::string(const std::string& folder)>& read) const {
  std::set<Tree> done;
  for (size_t count = from; count <= to; ++count) {
    for (const Tree& tree : Outcomes(count)) {
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

Tree CrashLog::Live(size_t count) const { return Replay(before_, operations_, count).Live(); }

bool CrashLog::IsDurable(size_t count, std::string_view path) const {
  return Replay(before_, operations_, count).IsDurable(path);
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
  }
  return "";
}

}  // namespace mt::crash
