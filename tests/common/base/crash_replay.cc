// Only a folder's sync makes its entries certain, only a file's own its bytes.
#include "tests/common/base/crash_replay.h"

#include <algorithm>
#include <memory>

#include "common/base/check.h"

namespace mt::crash {
namespace {

using Kind = Operation::Kind;

Content Share(std::string bytes) { return std::make_shared<const std::string>(std::move(bytes)); }

// The bytes of every new file are one object.
const Content& NoBytes() {
  static const Content none = Share("");
  return none;
}

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

}  // namespace

Replay::Replay(const Tree& before) {
  nodes_.push_back({.folder = true});
  for (const auto& [path, content] : before) {
    const auto [parent, name] = Split(path);
    const size_t node = NewNode(content == nullptr, content);
    nodes_[parent].entries[name] = nodes_[parent].durable_entries[name] = node;
  }
}

Tree Replay::Live() const {
  Tree tree;
  Walk(
      0, "", [](const Node& node) -> const Entries& { return node.entries; },
      [](size_t, const Node& node) { return node.data; }, &tree);
  return tree;
}

std::vector<Replay::Entries> Replay::Chosen(const std::vector<bool>& there) const {
  std::vector<Entries> folders;
  for (const Node& node : nodes_) folders.push_back(node.durable_entries);
  for (size_t i = 0; i < there.size(); ++i) {
    if (!there[i]) continue;
    for (const Change& change : uncertain_[i].changes) Carry(change, &folders[change.folder]);
  }
  return folders;
}

std::vector<Tree> Replay::Outcomes() {
  std::set<Tree> outcomes;
  for (const std::vector<bool>& choice : Choices(uncertain_.size())) {
    const std::vector<Entries> folders = Chosen(choice);
    for (const Loss loss : {Loss::kOld, Loss::kNew, Loss::kHalf, Loss::kZeros}) {
      outcomes.insert(Mixture(folders, [&](size_t) { return loss; }));
    }
    for (size_t n = 0; n < nodes_.size(); ++n) {
      if (nodes_[n].data == nodes_[n].durable) continue;
      outcomes.insert(Mixture(folders, [&](size_t m) { return m == n ? Loss::kOld : Loss::kNew; }));
    }
  }
  return {outcomes.begin(), outcomes.end()};
}

Tree Replay::Left(Unsynced unsynced) {
  const bool kept = unsynced != Unsynced::kDropped;
  const Loss loss = !kept ? Loss::kOld : unsynced == Unsynced::kTorn ? Loss::kHalf : Loss::kNew;
  return Mixture(Chosen(std::vector<bool>(uncertain_.size(), kept)),
                 [loss](size_t) { return loss; });
}

bool Replay::IsDurable(std::string_view path) const {
  const auto [parent, name] = Split(path);
  const auto live = nodes_[parent].entries.find(name);
  const auto durable = nodes_[parent].durable_entries.find(name);
  return live != nodes_[parent].entries.end() && durable != nodes_[parent].durable_entries.end() &&
         live->second == durable->second &&
         nodes_[live->second].data == nodes_[live->second].durable;
}

void Replay::Carry(const Change& change, Entries* entries) {
  if (change.node == kNone) {
    entries->erase(change.name);
  } else {
    (*entries)[change.name] = change.node;
  }
}

size_t Replay::NewNode(bool folder, Content content) {
  nodes_.push_back({.folder = folder, .data = content, .durable = content});
  return nodes_.size() - 1;
}

size_t Replay::Find(std::string_view path) const {
  size_t node = 0;
  while (!path.empty() && node != kNone) {
    const size_t slash = std::min(path.find('/'), path.size());
    const auto entry = nodes_[node].entries.find(std::string(path.substr(0, slash)));
    node = entry == nodes_[node].entries.end() ? kNone : entry->second;
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return node;
}
std::pair<size_t, std::string> Replay::Split(std::string_view path) const {
  const size_t slash = path.rfind('/');
  const bool top = slash == std::string_view::npos;
  const size_t parent = top ? 0 : Find(path.substr(0, slash));
  CHECK(parent != kNone) << "no folder for " << path;
  return {parent, std::string(top ? path : path.substr(slash + 1))};
}

void Replay::Enter(std::vector<Change> changes) {
  Uncertain effect{.changes = std::move(changes), .unsynced = {}};
  for (const Change& change : effect.changes) {
    Carry(change, &nodes_[change.folder].entries);
    effect.unsynced.insert(change.folder);
  }
  uncertain_.push_back(std::move(effect));
}

void Replay::Sync(size_t synced) {
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

void Replay::Add(const Operation& operation) {
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
    Enter({{parent, name, NewNode(folder, folder ? nullptr : NoBytes())}});
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
void Replay::Walk(size_t folder, const std::string& prefix, const EntriesOf& entries_of,
                  const ContentOf& content_of, Tree* tree) const {
  for (const auto& [name, node] : entries_of(nodes_[folder])) {
    const Node& at = nodes_[node];
    tree->emplace(prefix + name, at.folder ? nullptr : content_of(node, at));
    if (at.folder) Walk(node, prefix + name + "/", entries_of, content_of, tree);
  }
}

Tree Replay::Mixture(const std::vector<Entries>& folders, const std::function<Loss(size_t)>& loss) {
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

Content Replay::Mixed(const Node& node, Loss loss) {
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
  mixed = Share(std::move(bytes));
  return mixed;
}

}  // namespace mt::crash
