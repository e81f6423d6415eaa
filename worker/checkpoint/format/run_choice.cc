// The list is brought up to date first, so that every checkpoint of the directory has a run; then
// the run is picked, and last its checkpoints.
#include "worker/checkpoint/format/run_choice.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "worker/checkpoint/format/directory.h"

namespace mt::checkpoint {
namespace {

// The run of the highest epoch below this one; nullptr: there is none.
RunRecord* RunBefore(RunList* list, int64_t epoch) {
  RunRecord* before = nullptr;
  int64_t newest = 0;
  for (RunRecord& run : list->runs) {
    for (const auto& [first, last] : run.epochs) {
      const int64_t at = std::min(last, epoch - 1);
      if (first > at || at <= newest) continue;
      newest = at;
      before = &run;
    }
  }
  return before;
}

RunRecord* MutableRun(RunList* list, const RunRecord* run) {
  return run == nullptr ? nullptr : &list->runs[static_cast<size_t>(run - list->runs.data())];
}

// Gives the checkpoints of this epoch, from before runs had ids, to a run. `manifest` is that of
// one of them; nullptr: none can be read.
void Adopt(const RunQuery& query, int64_t epoch, const Manifest* manifest, RunList* list) {
  RunRecord* run = nullptr;
  const RunBeginning beginning =
      manifest == nullptr ? RunBeginning() : BeginningOf(manifest->spec_json);
  if (manifest == nullptr || (manifest->parent_step >= 0 && !beginning.named())) {
    if (manifest != nullptr && manifest->parent_epoch < epoch)
      run = MutableRun(list, RunOfEpoch(*list, manifest->parent_epoch));
    if (run == nullptr) run = RunBefore(list, epoch);
  }
  if (run == nullptr) {
    run = &list->runs.emplace_back();
    run->id = base::NewUid();
    run->beginning = beginning;
    run->place = query.place;
    if (manifest != nullptr) {
      run->began = manifest->created;
      run->job_uid = manifest->job_uid;
      run->job_name = manifest->job_name;
    }
  }
  AddEpoch(epoch, run);
}

// What a directory holds: its checkpoints, and the run of each epoch that has some.
struct Holding {
  std::vector<CheckpointId> all;          // oldest first
  std::map<int64_t, std::string> run_of;  // by epoch: id; no entry: not known
};

// Names the run of each checkpoint by its epoch: as the list tells or, where that does not know it,
// as a manifest does. Epochs from before runs had ids are adopted. `list_counts`: the list is of
// these checkpoints.
void NameEpochs(const RunQuery& query, bool list_counts, RunList* list, Holding* holding) {
  std::map<int64_t, std::optional<Manifest>> unknown;
  for (const CheckpointId& id : holding->all) {
    if (list_counts && RunOfEpoch(*list, id.epoch) != nullptr) continue;
    std::optional<Manifest>& manifest = unknown[id.epoch];
    if (manifest) continue;
    auto read = ReadManifest(query.directory, id);
    if (read.ok()) manifest = *std::move(read);
  }
  for (const auto& [epoch, manifest] : unknown) {
    if (!manifest || manifest->run.empty()) {
      Adopt(query, epoch, manifest ? &*manifest : nullptr, list);
      continue;
    }
    // One with an id was copied here alone, or the list is gone: the checkpoint tells its run.
    RunRecord* run = MutableRun(list, FindRun(*list, manifest->run));
    if (run == nullptr && manifest->run == query.fence_run) {
      // The fence tells that the run has trained here.
      run = &list->runs.emplace_back();
      run->id = manifest->run;
      run->place = query.place;
      run->job_uid = manifest->job_uid;
      run->job_name = manifest->job_name;
      run->beginning = BeginningOf(manifest->spec_json);
    }
    if (run != nullptr) AddEpoch(epoch, run);
    holding->run_of[epoch] = manifest->run;
  }
  for (const CheckpointId& id : holding->all) {
    const RunRecord* const run = RunOfEpoch(*list, id.epoch);
    if (run != nullptr) holding->run_of.try_emplace(id.epoch, run->id);
  }
}

// Whether one of the listed runs began with a checkpoint of this run, or as its copy.
bool IsSource(const RunList& list, const std::string& id) {
  return std::ranges::any_of(list.runs, [&id](const RunRecord& run) {
    return run.parent == id || (run.from && run.from->run == id);
  });
}

// RunChoice::list_of, of the list as it was found. The fence is copied with a directory, and its
// run was listed before the fence named it; else the checkpoints tell.
std::string OtherDirectoryOf(const RunQuery& query, const RunList& list,
                             const std::vector<CheckpointId>& all) {
  const bool here = std::ranges::any_of(
      list.runs, [&query](const RunRecord& run) { return IsAt(run, query.place); });
  if (here || list.runs.empty() || FindRun(list, query.fence_run) != nullptr) return "";
  for (auto id = all.rbegin(); id != all.rend(); ++id) {
    const auto manifest = ReadManifest(query.directory, *id);
    if (!manifest.ok()) continue;
    const bool known = manifest->run.empty() || FindRun(list, manifest->run) != nullptr ||
                       (query.fence_run.empty() && IsSource(list, manifest->run));
    return known ? "" : list.runs.back().place.path;
  }
  return "";
}

// The newest run of the directory, and of those that began so where a beginning is named; empty:
// there is none.
std::string NewestRun(const RunQuery& query, const RunList& list, const Holding& holding) {
  std::string newest;
  int64_t highest = 0;
  const auto offer = [&](const std::string& id, int64_t epoch) {
    if (epoch < highest) return;
    highest = epoch;
    newest = id;
  };
  const bool named = query.beginning.named();
  for (const RunRecord& run : list.runs) {
    if (!named || run.beginning == query.beginning) offer(run.id, LastEpoch(run));
  }
  if (named) return newest;
  for (const auto& [epoch, id] : holding.run_of) offer(id, epoch);
  return newest;
}

// The id of the run that the start goes on with; empty: one begins.
std::string Pick(const RunQuery& query, const RunChoice& choice, const Holding& holding) {
  if (!query.restart.empty()) {
    const RunRecord* const began = FindRestarted(choice.all, query.restart);
    if (began != nullptr) return began->id;
    if (!query.bound) return "";
  }
  if (query.bound) {
    if (!query.bound_run.empty()) return query.bound_run;
    if (!query.bound->run.empty()) return query.bound->run;
    const auto of = holding.run_of.find(query.bound->id.epoch);
    return of == holding.run_of.end() ? "" : of->second;
  }
  if (!choice.list_of.empty()) {
    // Runs of the list are another directory's.
    RunList own;
    for (const RunRecord& run : choice.all.runs) {
      if (IsAt(run, query.place)) own.runs.push_back(run);
    }
    return NewestRun(query, own, holding);
  }
  return NewestRun(query, choice.all, holding);
}

// Checkpoints of this run, newest first, that are not newer than `last`; nullptr: all.
std::vector<CheckpointId> CheckpointsOf(const std::string& run, const CheckpointId* last,
                                        const Holding& holding) {
  std::vector<CheckpointId> out;
  for (auto id = holding.all.rbegin(); id != holding.all.rend(); ++id) {
    const auto of = holding.run_of.find(id->epoch);
    if (of == holding.run_of.end() || of->second != run) continue;
    if (last == nullptr || !IsNewer(*id, *last)) out.push_back(*id);
  }
  return out;
}

// RunChoice::checkpoints and `of` of the run that was picked.
void FindCheckpoints(const Holding& holding, RunChoice* choice) {
  const RunRecord& run = choice->run;
  choice->checkpoints = CheckpointsOf(run.id, nullptr, holding);
  choice->of = run.id;
  if (!choice->checkpoints.empty()) return;
  choice->of.clear();
  // What a job names is found by its name; any other source lies in this directory.
  if (!run.from || (run.parent.empty() && run.beginning.named())) return;
  choice->of = run.from->run;
  choice->checkpoints = CheckpointsOf(run.from->run, &run.from->id, holding);
}

// A run that begins; where one of another directory was picked, as its copy: whoever means that one
// here means the copy from now on.
RunRecord BeginRun(const RunQuery& query, const RunChoice& picked) {
  const bool is_copy = !picked.run.id.empty();
  return {.id = base::NewUid(),
          .began = base::FormatUtc(base::ToUnixMicros(base::Clock::Real()->WallNow())),
          .job_uid = query.job_uid,
          .job_name = query.job_name,
          .beginning = is_copy ? picked.run.beginning : query.beginning,
          .parent = picked.of,
          .restart = is_copy && query.restart.empty() ? picked.run.restart : query.restart,
          .place = query.place};
}

// Leaves out the oldest runs, but `own`, that have no checkpoint here any more.
void ForgetOldest(const std::vector<CheckpointId>& all, const std::string& own, RunList* list) {
  auto& runs = list->runs;
  for (auto run = runs.begin(); run != runs.end() && runs.size() > kRunsKept;) {
    const bool kept = run->id == own || std::ranges::any_of(all, [&](const CheckpointId& id) {
                        const RunRecord* const of = RunOfEpoch(*list, id.epoch);
                        return of != nullptr && of->id == run->id;
                      });
    run = kept ? std::next(run) : runs.erase(run);
  }
}

// The checkpoints of the directory. A file server may show a folder late: none is taken for gone at
// the first look.
StatusOr<std::vector<CheckpointId>> ListAll(const RunQuery& query) {
  ASSIGN_OR_RETURN(std::vector<CheckpointId> all, ListCheckpoints(query.directory));
  const auto missing = [&] {
    return query.newest && std::ranges::find(all, *query.newest) == all.end();
  };
  if (!missing()) return all;
  ASSIGN_OR_RETURN(all, ListCheckpoints(query.directory));
  if (!missing()) return all;
  return base::DataLoss(
      "{}: the newest checkpoint was there a moment ago and is not listed any more",
      query.directory);
}

}  // namespace

StatusOr<RunChoice> ChooseRun(const RunQuery& query) {
  RunChoice choice;
  Holding holding;
  if (!query.directory.empty()) {
    ASSIGN_OR_RETURN(choice.all, ReadRuns(query.directory));
    ASSIGN_OR_RETURN(holding.all, ListAll(query));
    choice.list_of = OtherDirectoryOf(query, choice.all, holding.all);
    NameEpochs(query, choice.list_of.empty(), &choice.all, &holding);
  }
  const std::string picked = Pick(query, choice, holding);
  RunRecord* run = MutableRun(&choice.all, FindRun(choice.all, picked));
  const bool goes_on = run != nullptr && IsAt(*run, query.place);
  if (run != nullptr) {
    choice.run = *run;
    FindCheckpoints(holding, &choice);
  } else if (!picked.empty()) {
    choice.checkpoints = CheckpointsOf(picked, nullptr, holding);
    if (!choice.checkpoints.empty()) choice.of = picked;
  }
  choice.begins = !goes_on;
  if (!goes_on) run = &choice.all.runs.emplace_back(BeginRun(query, choice));
  // The list was lost and is made anew: the next start knows the run by its token again.
  if (run->restart.empty() && query.bound) run->restart = query.restart;
  AddEpoch(query.epoch, run);
  choice.run = *run;
  ForgetOldest(holding.all, choice.run.id, &choice.all);
  return choice;
}

const RunRecord* FindRestarted(const RunList& list, std::string_view restart) {
  if (restart.empty()) return nullptr;
  // Of a run and its copy, the copy.
  const auto found = std::find_if(list.runs.rbegin(), list.runs.rend(),
                                  [&](const RunRecord& run) { return run.restart == restart; });
  return found == list.runs.rend() ? nullptr : &*found;
}

std::string SetSource(const std::optional<RunSource>& loaded, bool here, RunChoice* choice) {
  std::optional<RunSource> from = loaded;
  if (from && from->run.empty() && here) {
    const RunRecord* const of = RunOfEpoch(choice->all, from->id.epoch);
    if (of != nullptr) from->run = of->id;
  }
  std::string source = from ? from->run : "";
  const bool is_own = from && from->run == choice->run.id;
  RunRecord* const run = MutableRun(&choice->all, FindRun(choice->all, choice->run.id));
  if (is_own || run == nullptr) return source;
  run->from = from;
  choice->run.from = from;
  return source;
}

}  // namespace mt::checkpoint
