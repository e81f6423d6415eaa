// Tombstones are walked through: they are few beside the histories that are read afterwards.
#include "daemon/ledger/run_jobs.h"

#include <algorithm>
#include <set>
#include <utility>

#include "megatrain/v1/store.pb.h"

namespace mt::daemon {
namespace {

// The runs that a job has trained.
std::set<std::string> RunsOf(const v1::StoredJob& stored) {
  std::set<std::string> runs;
  for (const v1::EpochRun& one : stored.runs()) runs.insert(one.run());
  if (!stored.job().run().id().empty()) runs.insert(stored.job().run().id());
  return runs;
}

// The runs of all jobs that are not deleted.
std::set<std::string> LivingRuns(Ledger* ledger) {
  std::set<std::string> runs;
  for (const v1::StoredJob* stored : ledger->Jobs()) runs.merge(RunsOf(*stored));
  return runs;
}

bool AnyIn(const std::set<std::string>& runs, const std::set<std::string>& living) {
  return std::ranges::any_of(runs, [&](const std::string& run) { return living.contains(run); });
}

}  // namespace

bool HasTrained(const v1::StoredJob& stored, std::string_view run) {
  if (run.empty()) return false;
  return stored.job().run().id() == run ||
         std::ranges::any_of(stored.runs(),
                             [run](const v1::EpochRun& one) { return one.run() == run; });
}

std::vector<const v1::StoredJob*> JobsOfRun(Ledger* ledger, std::string_view run) {
  std::vector<const v1::StoredJob*> out;
  for (const v1::StoredJob* stored : ledger->Jobs()) {
    if (HasTrained(*stored, run)) out.push_back(stored);
  }
  for (const std::string& uid : ledger->DeletedJobs()) {
    const v1::StoredJob* trace = ledger->FindDeleted(uid);
    if (trace != nullptr && HasTrained(*trace, run)) out.push_back(trace);
  }
  std::ranges::stable_sort(out, {}, [](const v1::StoredJob* one) {
    return std::pair(one->job().created_us(), one->job().uid());
  });
  return out;
}

int NextAttempt(Ledger* ledger, std::string_view run) {
  int newest = 0;
  int uncounted = 0;
  for (const v1::StoredJob* stored : JobsOfRun(ledger, run)) {
    int own = 0;
    for (const v1::EpochRun& one : stored->runs()) {
      if (one.run() == run) own = std::max(own, one.attempt());
    }
    newest = std::max(newest, own);
    if (own == 0) ++uncounted;
  }
  return std::max(newest, uncounted) + 1;
}

std::vector<std::string> KeptHistories(Ledger* ledger) {
  const std::set<std::string> living = LivingRuns(ledger);
  std::vector<std::string> out;
  for (const std::string& uid : ledger->DeletedJobs()) {
    const v1::StoredJob* trace = ledger->FindDeleted(uid);
    if (trace != nullptr && AnyIn(RunsOf(*trace), living)) out.push_back(uid);
  }
  return out;
}

std::vector<std::string> HistoriesGoneWith(Ledger* ledger, const std::string& deleted_uid) {
  const v1::StoredJob* deleted = ledger->FindDeleted(deleted_uid);
  if (deleted == nullptr) return {deleted_uid};
  const std::set<std::string> runs = RunsOf(*deleted);
  if (runs.empty()) return {deleted_uid};
  const std::set<std::string> living = LivingRuns(ledger);
  std::vector<std::string> out;
  for (const std::string& uid : ledger->DeletedJobs()) {
    const v1::StoredJob* trace = ledger->FindDeleted(uid);
    if (trace == nullptr) continue;
    const std::set<std::string> its = RunsOf(*trace);
    if (AnyIn(its, runs) && !AnyIn(its, living)) out.push_back(uid);
  }
  return out;
}

}  // namespace mt::daemon
