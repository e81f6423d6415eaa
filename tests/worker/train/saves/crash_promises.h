// What must be true of a checkpoint directory whatever a crash leaves of it, held against the log
// of a run: what was saved is there, whole and to the bit, until it is removed; nothing is there in
// parts; a tag stays on a checkpoint; and what others rely upon is durable before they do.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/common/base/crash_log.h"
#include "tests/common/base/crash_replay.h"
#include "tests/worker/train/saves/crash_rig.h"

namespace mt::train {

// One thread. The run must outlive it.
class CrashPromises {
 public:
  // Of the run as it was, or as if its syncs of one name had not been done.
  explicit CrashPromises(const LoggedRun& run, std::string without_sync = "");

  // The first promise that is broken before or at an operation of `points` (indices of
  // run.operations), in any outcome of a crash after it, and where; empty: none. `scratch` is a
  // folder for it.
  std::string FirstBroken(const std::set<size_t>& points, const std::string& scratch);

  // How many outcomes of crashes were looked at, each once.
  size_t num_outcomes() const { return done_.size(); }
  // A complete checkpoint of this step was, or was not, among what some crash left.
  bool was_found(int64_t step) const { return found_.contains(step); }
  bool was_missing(int64_t step) const { return missing_.contains(step); }
  // Steps that have been told as saved, and are not being removed.
  const std::set<int64_t>& surely() const { return promised_.surely; }

 private:
  struct Promised {
    std::set<int64_t> surely;
    int64_t tagged = 0;  // step that has the tag for certain, or a later one; 0: none
    auto operator<=>(const Promised&) const = default;
  };
  // By file name, of a step's folder when that got its name.
  using Files = std::map<std::string, crash::Content>;

  std::string BrokenOrder(size_t at) const;
  void Promise(size_t at);
  std::string BrokenBy(const crash::Tree& left, const std::string& scratch);
  std::string BrokenStep(const crash::Tree& left, int64_t step) const;
  std::string BrokenLabels(const std::string& directory, const std::vector<int64_t>& steps) const;

  const LoggedRun& run_;
  const std::string without_sync_;
  crash::Replay replay_;
  Promised promised_;
  std::map<int64_t, Files> saved_;
  std::set<std::pair<Promised, crash::Tree>> done_;
  std::set<int64_t> found_, missing_;
};

}  // namespace mt::train
