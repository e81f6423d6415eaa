// Parts are collected as the jobs' histories have them and then cut, the newest first.
#include "daemon/telemetry/run_parts.h"

#include <algorithm>
#include <utility>

#include "daemon/telemetry/history.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

namespace v1 = megatrain::v1;

// Steps of the job that no run is told for.
RunPart UntoldPart(const RunSource& job, const HistoryView& head) {
  const int64_t from = head.first_step > 0 ? head.first_step - 1 : job.resumed_from_step;
  return {.job_uid = job.job_uid, .from_step = from};
}

// An attempt ends where a later start of the same job went on, whatever run that trained.
int64_t EndInJob(const std::vector<v1::EpochRun>& runs, int64_t epoch) {
  int64_t end = RunPart::kOpen;
  for (const v1::EpochRun& later : runs) {
    if (later.epoch() > epoch) end = std::min(end, later.from_step());
  }
  return end;
}

void AddJob(const History& history, const RunSources& sources, const RunSource& job,
            RunParts* out) {
  // A row without columns: what is asked for is what the answer says of the whole history.
  HistoryView head = history.Walk(job.job_uid, {.limit = 1, .names = {""}});
  std::ranges::stable_sort(head.runs, {}, &v1::EpochRun::epoch);
  bool first = true;
  bool any = false;
  for (const v1::EpochRun& one : head.runs) {
    const bool is_first = std::exchange(first, false);
    if (sources.run.empty() || one.run() != sources.run) continue;
    any = true;
    // Steps of the same training that ranks from before runs had ids have done.
    if (is_first && !head.rows.empty() && head.rows.epochs[0] < one.epoch()) {
      RunPart before = UntoldPart(job, head);
      before.to_step = one.from_step();
      out->parts.push_back(std::move(before));
    }
    // What lies behind the beginning of one that has done no step yet is of an earlier one.
    const bool has_steps = one.epoch() <= head.epoch;
    out->parts.push_back({.job_uid = job.job_uid,
                          .from_step = one.from_step(),
                          .to_step = has_steps ? EndInJob(head.runs, one.epoch()) : one.from_step(),
                          .attempt = one.attempt(),
                          .epoch = one.epoch()});
    out->told.push_back(one);
    out->told.back().set_job_uid(job.job_uid);
  }
  if (any || (job.told && job.job_uid != sources.job_uid)) return;
  out->parts.push_back(UntoldPart(job, head));
}

// In the order of the attempts. Earlier versions have counted none: theirs are by their places,
// where the first one that is counted comes next.
void Number(RunParts* all) {
  const auto counted = [](const RunPart& part) { return part.attempt > 0; };
  const auto first = std::ranges::find_if(all->parts, counted);
  const auto before = static_cast<int>(first - all->parts.begin());
  if (first == all->parts.end() || first->attempt == before + 1) {
    int attempt = 0;
    for (auto part = all->parts.begin(); part != first; ++part) part->attempt = ++attempt;
  }
  if (!std::ranges::all_of(all->parts, counted)) return;
  std::ranges::stable_sort(all->parts, {}, &RunPart::attempt);
  std::ranges::stable_sort(all->told, {}, &v1::EpochRun::attempt);
}

void FindReplaced(const History& history, RunPart* part) {
  if (part->epoch == 0) return;
  const HistoryRange range{
      .from_step = part->from_step + 1, .to_step = RunPart::kOpen, .replaced_of = part->epoch};
  const HistoryTable steps = history.Part(part->job_uid, 0, range, {""}).rows;
  if (!steps.empty()) part->replaced_to = steps.steps.back();
}

}  // namespace

RunParts FindRunParts(const History& history, const RunSources& sources) {
  RunParts out;
  for (const RunSource& job : sources.jobs) AddJob(history, sources, job, &out);
  Number(&out);
  std::vector<RunPart>& parts = out.parts;
  const auto is_empty = [](const RunPart& part) { return part.to_step <= part.from_step; };
  if (sources.attempt > 0) {
    std::erase_if(parts, [&](const RunPart& part) { return part.attempt != sources.attempt; });
    for (RunPart& part : parts) FindReplaced(history, &part);
    std::erase_if(parts,
                  [&](const RunPart& part) { return is_empty(part) && part.replaced_to == 0; });
    return out;
  }
  while (!parts.empty() && parts.back().job_uid != sources.job_uid) parts.pop_back();
  int64_t end = RunPart::kOpen;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    part->to_step = std::min(part->to_step, end);
    end = std::min(end, part->from_step);
  }
  std::erase_if(parts, is_empty);
  return out;
}

}  // namespace mt::daemon
