// Neighbouring parts of one history are read as one.
#include "daemon/telemetry/run_history.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "daemon/telemetry/history_view.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

// A stretch of one job's history that is read at once, and what that history has.
struct Stretch {
  std::string job_uid;
  int64_t from_step = 0;    // exclusive
  int64_t to_step = 0;      // inclusive, at most the history's last step
  int64_t open_to = 0;      // as the part says: evaluations may lie behind the last step
  int64_t replaced_to = 0;  // RunPart.replaced_to
  int64_t epoch = 0;
  HistoryView head;

  // Whether it is all that this history has.
  bool IsWhole() const {
    return replaced_to == 0 && from_step < head.first_step && to_step >= head.last_step;
  }
};

struct Run {
  RunParts parts;
  std::vector<Stretch> stretches;
};

Run FindRun(const History& history, const RunSources& sources) {
  Run run{.parts = FindRunParts(history, sources), .stretches = {}};
  for (const RunPart& part : run.parts.parts) {
    if (!run.stretches.empty() && run.stretches.back().job_uid == part.job_uid &&
        run.stretches.back().open_to == part.from_step) {
      run.stretches.back().open_to = part.to_step;
      continue;
    }
    run.stretches.push_back({.job_uid = part.job_uid,
                             .from_step = part.from_step,
                             .open_to = part.to_step,
                             .replaced_to = part.replaced_to,
                             .epoch = part.epoch,
                             .head = {}});
  }
  for (Stretch& one : run.stretches) {
    one.head = history.Walk(one.job_uid, {.limit = 1, .names = {""}});
    one.to_step = std::max(std::min(one.open_to, one.head.last_step), one.replaced_to);
  }
  return run;
}

// What the answer says of the run, beside its rows.
void FillHead(const Run& run, const RunSources& sources, HistoryView* view) {
  view->first_step = 0;
  view->last_step = 0;
  for (const Stretch& one : run.stretches) {
    const int64_t first = std::max(one.from_step + 1, one.head.first_step);
    if (one.head.first_step == 0 || first > one.to_step) continue;
    if (view->first_step == 0) view->first_step = first;
    view->last_step = one.to_step;
  }
  if (run.stretches.empty()) return;
  const Stretch& newest = run.stretches.back();
  view->epoch = newest.head.epoch;
  view->epoch_base = newest.head.epoch_base;
  view->own_from_step =
      newest.job_uid == sources.job_uid && run.stretches.size() > 1 ? newest.from_step : 0;
}

void FillAttempts(const Run& run, HistoryView* view) {
  const bool any =
      std::ranges::any_of(run.parts.parts, [](const RunPart& part) { return part.attempt > 0; });
  if (!any) return;
  auto part = run.parts.parts.begin();
  for (const int64_t step : view->rows.steps) {
    while (part != run.parts.parts.end() && std::max(part->to_step, part->replaced_to) < step)
      ++part;
    const bool inside = part != run.parts.parts.end() && part->from_step < step;
    view->attempts.push_back(inside ? part->attempt : 0);
  }
}

// The rows of the stretches in the range behind each other.
struct Asked {
  int level = 0;
  HistoryRange range;
  std::vector<std::string> names;
};
HistoryView Read(const History& history, const Run& run, const Asked& asked) {
  HistoryView out;
  out.rows = HistoryTable(asked.level);
  const size_t limit = asked.range.limit;
  for (const Stretch& one : run.stretches) {
    HistoryRange range = asked.range;
    // An evaluation may lie before the first step.
    if (one.from_step > 0) range.from_step = std::max(range.from_step, one.from_step + 1);
    if (limit <= out.rows.num_rows()) break;
    const int64_t asked_to = range.to_step;
    range.to_step = std::min(asked_to, one.open_to);
    range.limit = limit - out.rows.num_rows();
    if (range.from_step <= range.to_step) {
      HistoryView part = history.Part(one.job_uid, asked.level, range, asked.names);
      for (size_t row = 0; row < part.rows.num_rows(); ++row) out.rows.AppendRow(part.rows, row);
      for (auto& eval : part.evals) out.evals.push_back(std::move(eval));
      out.bytes_read += part.bytes_read;
    }
    // Its own steps come first: a page that they fill has none of the replaced ones.
    if (one.replaced_to == 0 || limit <= out.rows.num_rows()) continue;
    range.limit = limit - out.rows.num_rows();
    range.from_step = std::max(range.from_step, one.open_to + 1);
    range.to_step = std::min(asked_to, one.replaced_to);
    range.replaced_of = one.epoch;
    const HistoryTable more = history.Part(one.job_uid, asked.level, range, asked.names).rows;
    for (size_t row = 0; row < more.num_rows(); ++row) out.rows.AppendRow(more, row);
  }
  return out;
}

int64_t OpenEnd(int64_t to_step) { return to_step <= 0 ? RunPart::kOpen : to_step; }

bool IsOneHistory(const Run& run) {
  return run.stretches.size() == 1 && run.stretches[0].IsWhole();
}

}  // namespace

HistoryView QueryRun(const History& history, const RunSources& sources, const HistoryQuery& query) {
  const Run run = FindRun(history, sources);
  HistoryView view;
  if (IsOneHistory(run)) {
    view = history.Query(run.stretches[0].job_uid, query);
  } else {
    const int64_t points =
        std::min(query.points <= 0 ? kHistoryDefaultPoints : query.points, kHistoryMaxPoints);
    int64_t num_steps = 0;
    for (const Stretch& one : run.stretches) {
      const int64_t from = std::max({query.from_step, one.from_step + 1, one.head.first_step});
      num_steps += std::max<int64_t>(0, std::min(OpenEnd(query.to_step), one.to_step) - from + 1);
    }
    view = Read(history, run,
                {.level = ChooseHistoryLevel(num_steps, points),
                 .range = {.from_step = query.from_step,
                           .to_step = OpenEnd(query.to_step),
                           .since_us = query.since_us,
                           .samples = query.samples},
                 .names = query.names});
    const int64_t most = std::min(points, HistoryPointsThatFit(view.rows, points));
    view.rows = ThinHistory(std::move(view.rows), static_cast<size_t>(most));
    FillHead(run, sources, &view);
  }
  FillAttempts(run, &view);
  view.runs = run.parts.told;
  return view;
}

HistoryView WalkRun(const History& history, const RunSources& sources, const HistoryWalk& walk) {
  const Run run = FindRun(history, sources);
  HistoryView view;
  if (IsOneHistory(run)) {
    view = history.Walk(run.stretches[0].job_uid, walk);
  } else {
    const auto limit = static_cast<size_t>(std::clamp(walk.limit, 1, kHistoryMaxPoints));
    view = Read(history, run,
                {.range = {.from_step = std::max(walk.from_step, walk.after_step + 1),
                           .to_step = OpenEnd(walk.to_step),
                           .since_us = walk.since_us,
                           .limit = limit},
                 .names = walk.names});
    const size_t before = view.rows.num_rows();
    view.rows.Truncate(static_cast<size_t>(HistoryPointLimit(view.rows.columns.size(), 0)));
    FillHead(run, sources, &view);
    const bool full = view.rows.num_rows() < before || before == limit;
    if (full && view.rows.steps.back() < std::min(OpenEnd(walk.to_step), view.last_step)) {
      view.next_step = view.rows.steps.back();
      std::erase_if(view.evals, [&](const auto& eval) { return eval.step() > view.next_step; });
    }
  }
  FillAttempts(run, &view);
  view.runs.clear();
  if (walk.after_step <= 0) view.runs = run.parts.told;
  return view;
}

}  // namespace mt::daemon
