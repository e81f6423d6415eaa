// What a crash may leave after the first operations of a log, operation by operation: every node of
// the tree with its bytes and entries, as the running system sees them and as far as they are
// durable, and the choices among what is neither (crash_log.h says which there are).
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/common/base/crash_log.h"

namespace mt::crash {

// What becomes of everything that was not synced.
enum class Unsynced {
  kDropped,  // no entry and no byte of it is left
  kKept,     // all of it is left: the process was killed, the machine went on
  kTorn,     // every entry is left, and half of the bytes that a file has got since its last sync
};

// One thread.
class Replay {
 public:
  explicit Replay(const Tree& before);

  void Add(const Operation& operation);

  Tree Live() const;                            // CrashLog::Live
  std::vector<Tree> Outcomes();                 // CrashLog::Outcomes
  Tree Left(Unsynced unsynced);                 // one of them
  bool IsDurable(std::string_view path) const;  // CrashLog::IsDurable

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
  // What may be left of bytes that were not synced.
  enum class Loss { kOld, kNew, kHalf, kZeros };

  static void Carry(const Change& change, Entries* entries);
  size_t NewNode(bool folder, Content content);
  size_t Find(std::string_view path) const;  // of a path, or kNone
  std::pair<size_t, std::string> Split(std::string_view path) const;
  void Enter(std::vector<Change> changes);
  void Sync(size_t synced);
  template <class EntriesOf, class ContentOf>
  void Walk(size_t folder, const std::string& prefix, const EntriesOf& entries_of,
            const ContentOf& content_of, Tree* tree) const;
  // The uncertain entries that are there, by index.
  std::vector<Entries> Chosen(const std::vector<bool>& there) const;
  Tree Mixture(const std::vector<Entries>& folders, const std::function<Loss(size_t)>& loss);
  Content Mixed(const Node& node, Loss loss);

  std::vector<Node> nodes_;  // the first is the root
  std::vector<Uncertain> uncertain_;
  // Equal mixtures are one object, so that equal trees compare equal.
  std::map<std::tuple<Content, Content, bool>, Content> mixed_;
};

}  // namespace mt::crash
