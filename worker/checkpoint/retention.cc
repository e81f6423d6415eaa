// The choice is by sets: every rule adds what it keeps. Losses are read from the disk where a rule
// asks for them. A list of runs that cannot be read keeps nobody from pruning what the manifests
// say to be the run's own.
#include "worker/checkpoint/retention.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "common/base/files.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/label.h"
#include "worker/checkpoint/format/manifest.h"
#include "worker/checkpoint/format/pin.h"
#include "worker/checkpoint/format/run_list.h"
#include "worker/checkpoint/format/verified.h"

namespace mt::checkpoint {
namespace {

// A run that finds the newest one damaged goes on from the one before.
constexpr int64_t kNeverTouched = 2;

// Those of the lowest loss among the ones that were measured alike; `all` is sorted, newest first.
std::vector<CheckpointId> BestOf(const std::vector<StoredCheckpoint>& all, int64_t count) {
  std::vector<const StoredCheckpoint*> judged;
  for (const StoredCheckpoint& one : all) {
    if (!one.spoiled && one.valid_loss && !std::isnan(*one.valid_loss)) judged.push_back(&one);
  }
  std::ranges::stable_sort(judged, {},
                           [](const StoredCheckpoint* one) { return *one->valid_loss; });
  std::vector<CheckpointId> best;
  std::map<Measure, int64_t> taken;
  for (const StoredCheckpoint* one : judged) {
    if (taken[one->measure]++ < count) best.push_back(one->id);
  }
  return best;
}

// Whose a folder is, as far as that is known.
class Owners {
 public:
  explicit Owners(const PruneArgs& args) : args_(args) {
    if (args.run.empty()) return;
    auto list = ReadRuns(args.list_in.empty() ? args.directory : args.list_in);
    if (list.ok()) list_ = *std::move(list);
  }

  // The run of a folder with a manifest; empty: not known, or not asked for.
  std::string OfManifest(const CheckpointId& id) const {
    if (args_.run.empty()) return "";
    if (args_.known != nullptr && args_.known->contains(id)) return args_.known->at(id);
    const auto manifest = ReadManifest(args_.directory, id);
    if (!manifest.ok()) return OfEpoch(id.epoch);
    std::string run = RunOf(list_, *manifest);
    if (args_.known != nullptr && !run.empty()) args_.known->emplace(id, run);
    return run;
  }
  // Whether this run may remove what is no checkpoint.
  bool MayClear(const CheckpointId& id, bool has_manifest) const {
    if (args_.run.empty()) return true;
    const std::string run = has_manifest ? OfManifest(id) : OfEpoch(id.epoch);
    if (run == args_.run) return true;
    if (!run.empty()) return !has_manifest && IsElsewhere(run);
    // A start that ended before it had named its run, or an earlier version, has left it.
    return !has_manifest && !list_.runs.empty();
  }

 private:
  // The directory was copied from where this run trains: it never comes here to clear.
  bool IsElsewhere(const std::string& run) const {
    const RunRecord* const own = FindRun(list_, args_.run);
    const RunRecord* const other = FindRun(list_, run);
    return own != nullptr && other != nullptr && !IsAt(*other, own->place);
  }
  std::string OfEpoch(int64_t epoch) const {
    const RunRecord* const run = RunOfEpoch(list_, epoch);
    return run == nullptr ? "" : run->id;
  }

  const PruneArgs& args_;
  RunList list_;
};

// Nobody goes on from one that is damaged, so that it keeps no place from one that is intact. Of
// one that cannot be read for another cause nothing is known.
bool IsSpoiled(const std::string& directory, const CheckpointId& id) {
  const StatusOr<Manifest> manifest = ReadManifest(directory, id);
  return manifest.ok() ? manifest->spoiled : absl::IsDataLoss(manifest.status());
}

// The complete checkpoints with what the rules ask of each.
std::vector<StoredCheckpoint> LookedAt(const PruneArgs& args, const Owners& owners,
                                       const std::vector<CheckpointId>& all) {
  std::vector<StoredCheckpoint> stored;
  for (const CheckpointId& id : all) {
    StoredCheckpoint one{.id = id, .run = owners.OfManifest(id)};
    if (one.run != args.run) continue;
    const std::string folder = base::JoinPath(args.directory, FolderName(id));
    one.pinned = IsPinned(folder) || HasLabel(folder);
    one.verified = IsVerified(folder);
    one.spoiled = IsSpoiled(args.directory, id);
    if (args.rules.keep_best > 0) {
      const auto evaluation = ReadEvaluation(folder).value_or(std::nullopt);
      if (evaluation) {
        one.valid_loss = evaluation->loss;
        one.measure = evaluation->measure;
      }
    }
    stored.push_back(std::move(one));
  }
  return stored;
}

// Removals of large checkpoints take their time, and whoever was told meanwhile that a step is kept
// has said so.
bool IsReadNow(const PruneArgs& args, int64_t step) {
  if (!args.kept_steps) return false;
  const std::vector<int64_t> steps = args.kept_steps();
  return std::ranges::find(steps, step) != steps.end();
}

// Folders of earlier epochs that are no checkpoints.
StatusOr<std::vector<std::string>> LeftOver(const PruneArgs& args, const Owners& owners,
                                            const std::vector<CheckpointId>& all) {
  const std::set<CheckpointId> complete(all.begin(), all.end());
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(args.directory, error), end; !error && it != end;
       it.increment(error)) {
    std::string name = it->path().filename().string();
    const bool temporary = name.ends_with(".tmp");
    const auto id =
        ParseFolderName(std::string_view(name).substr(0, name.size() - (temporary ? 4 : 0)));
    if (!id || id->epoch >= args.epoch) continue;
    const std::string path = it->path().string();
    if (!temporary && (complete.contains(*id) || IsPinned(path) || HasLabel(path))) continue;
    if (!owners.MayClear(*id, !temporary && base::Exists(base::JoinPath(path, kManifestName))))
      continue;
    names.push_back(std::move(name));
  }
  if (error) return base::ErrnoError(error.value(), "list " + args.directory);
  return names;
}

}  // namespace

std::vector<CheckpointId> ChooseDoomed(const RetentionRules& rules,
                                       std::vector<StoredCheckpoint> all, std::string_view run) {
  if (!run.empty())
    std::erase_if(all, [run](const StoredCheckpoint& one) { return one.run != run; });
  std::ranges::sort(all, [](const StoredCheckpoint& a, const StoredCheckpoint& b) {
    return IsNewer(a.id, b.id);
  });
  const std::vector<CheckpointId> best = BestOf(all, rules.keep_best);
  std::set<CheckpointId> kept(best.begin(), best.end());
  if (rules.base) kept.insert(*rules.base);
  const auto verified = std::ranges::find_if(all, &StoredCheckpoint::verified);
  if (verified != all.end()) kept.insert(verified->id);
  if (!all.empty()) kept.insert(all.front().id);
  // Spoiled ones behind the others: they take the places that those leave.
  std::ranges::stable_partition(all, [](const StoredCheckpoint& one) { return !one.spoiled; });
  const int64_t last = std::max(rules.keep_last, kNeverTouched);
  for (int64_t i = 0; i < static_cast<int64_t>(all.size()); ++i) {
    const StoredCheckpoint& one = all[static_cast<size_t>(i)];
    const bool divided = rules.keep_every > 0 && one.id.step % rules.keep_every == 0;
    const bool is_read = std::ranges::find(rules.steps, one.id.step) != rules.steps.end();
    if (i < last || divided || one.pinned || is_read) kept.insert(one.id);
  }
  std::vector<CheckpointId> doomed;
  for (const StoredCheckpoint& one : all) {
    if (!kept.contains(one.id)) doomed.push_back(one.id);
  }
  std::ranges::sort(doomed, [](CheckpointId a, CheckpointId b) { return IsNewer(b, a); });
  return doomed;
}

StatusOr<std::vector<std::string>> PruneCheckpoints(const PruneArgs& args) {
  ASSIGN_OR_RETURN(const std::vector<CheckpointId> all, ListCheckpoints(args.directory));
  const Owners owners(args);
  RetentionRules rules = args.rules;
  if (args.kept_steps) {
    for (const int64_t step : args.kept_steps()) rules.steps.push_back(step);
  }
  const auto doomed = ChooseDoomed(rules, LookedAt(args, owners, all), args.run);
  ASSIGN_OR_RETURN(const std::vector<std::string> left_over, LeftOver(args, owners, all));
  std::vector<std::string> removed;
  const auto remove = [&](const std::string& name) -> Status {
    if (args.fence != nullptr) RETURN_IF_ERROR(CheckFence(args.directory, *args.fence));
    RETURN_IF_ERROR(RemoveCheckpoint(base::JoinPath(args.directory, name)));
    removed.push_back(name);
    return OkStatus();
  };
  for (const CheckpointId& id : doomed) {
    if (!IsReadNow(args, id.step)) RETURN_IF_ERROR(remove(FolderName(id)));
  }
  for (const std::string& name : left_over) RETURN_IF_ERROR(remove(name));
  return removed;
}

}  // namespace mt::checkpoint
