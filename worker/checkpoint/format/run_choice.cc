// The list is brought up to date first, so that every checkpoint of the directory has a run; then
// the one that was loaded decides.
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

void AdoptOlder(const RunQuery& query, const std::vector<CheckpointId>& all, RunList* list) {
  std::map<int64_t, std::optional<Manifest>> unknown;
  for (const CheckpointId& id : all) {
    if (RunOfEpoch(*list, id.epoch) != nullptr) continue;
    std::optional<Manifest>& manifest = unknown[id.epoch];
    if (manifest) continue;
    auto read = ReadManifest(query.directory, id);
    if (read.ok()) manifest = *std::move(read);
  }
  for (const auto& [epoch, manifest] : unknown) {
    // One with an id was copied here alone, or the list is gone: the checkpoint tells its run.
    if (manifest && !manifest->run.empty()) continue;
    Adopt(query, epoch, manifest ? &*manifest : nullptr, list);
  }
}

// RunChoice::list_of, of the list as it was found.
std::string OtherDirectoryOf(const RunQuery& query, const RunList& list) {
  const bool unknown = query.loaded && query.loaded_here && !query.loaded->run.empty() &&
                       FindRun(list, query.loaded->run) == nullptr;
  const bool elsewhere = std::ranges::none_of(
      list.runs, [&query](const RunRecord& run) { return IsAt(run, query.place); });
  return unknown && elsewhere && !list.runs.empty() ? list.runs.back().place.path : "";
}

// The run that goes on from the checkpoint `from` of the directory; nullptr: another one begins.
RunRecord* FindToGoOnWith(const RunQuery& query, const RunSource& from, RunList* list) {
  RunRecord* run = MutableRun(list, FindRun(*list, from.run));
  if (run == nullptr && !from.run.empty() && from.run == query.fence_run) {
    // The list is gone; the fence tells that the run has trained here.
    run = &list->runs.emplace_back();
    run->id = from.run;
    run->place = query.place;
    AddEpoch(from.id.epoch, run);
  }
  if (run != nullptr && IsAt(*run, query.place)) return run;
  const auto began = std::find_if(list->runs.rbegin(), list->runs.rend(), [&](const auto& one) {
    return !one.parent.empty() && one.from == from && IsAt(one, query.place);
  });
  return began == list->runs.rend() ? nullptr : &*began;
}

RunRecord BeginRun(const RunQuery& query, const std::optional<RunSource>& from,
                   const std::string& parent) {
  return {.id = base::NewUid(),
          .began = base::FormatUtc(base::ToUnixMicros(base::Clock::Real()->WallNow())),
          .job_uid = query.job_uid,
          .job_name = query.job_name,
          .beginning = query.beginning,
          .from = from,
          .parent = parent,
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

}  // namespace

StatusOr<RunChoice> ChooseRun(const RunQuery& query) {
  RunChoice choice;
  std::vector<CheckpointId> all;
  if (!query.directory.empty()) {
    ASSIGN_OR_RETURN(choice.all, ReadRuns(query.directory));
    choice.list_of = OtherDirectoryOf(query, choice.all);
    ASSIGN_OR_RETURN(all, ListCheckpoints(query.directory));
    AdoptOlder(query, all, &choice.all);
  }
  std::optional<RunSource> from = query.loaded;
  if (from && from->run.empty() && query.loaded_here) {
    const RunRecord* const of = RunOfEpoch(choice.all, from->id.epoch);
    if (of != nullptr) from->run = of->id;
  }
  RunRecord* run = nullptr;
  std::string parent;
  if (from && query.loaded_here && !query.beginning.named()) {
    run = FindToGoOnWith(query, *from, &choice.all);
    parent = from->run;  // of one that begins all the same
  }
  choice.begins = run == nullptr;
  if (run == nullptr) run = &choice.all.runs.emplace_back(BeginRun(query, from, parent));
  AddEpoch(query.epoch, run);
  choice.run = *run;
  if (from) choice.loaded = from->run;
  ForgetOldest(all, choice.run.id, &choice.all);
  return choice;
}

}  // namespace mt::checkpoint
