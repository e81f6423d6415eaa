// Attempts are found by name and directory; what an attempt resumed from cuts the ones before it.
#include "client/commands/attempts.h"

#include <algorithm>
#include <cmath>

#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

// The jobs that may be earlier attempts of `newest`, newest first.
StatusOr<std::vector<v1::Job>> EarlierJobs(const Api& api, const v1::Job& newest) {
  std::vector<v1::Job> out;
  v1::ListJobsRequest request;
  request.set_namespace_(newest.namespace_());
  do {
    ASSIGN_OR_RETURN(const v1::ListJobsResponse page, api.ListJobs(request));
    for (const v1::Job& job : page.jobs()) {
      if (job.name() == newest.name() && job.checkpoint_path() == newest.checkpoint_path() &&
          job.created_us() < newest.created_us()) {
        out.push_back(job);
      }
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  std::ranges::stable_sort(out, std::greater<>(), &v1::Job::created_us);
  return out;
}

// Drops what lies after `step`.
void CutAfter(int64_t step, v1::History* history) {
  int rows = 0;
  while (rows < history->steps_size() && history->steps(rows) <= step) ++rows;
  history->mutable_steps()->Truncate(rows);
  for (v1::History::Column& column : *history->mutable_columns())
    column.mutable_last()->Truncate(std::min(rows, column.last_size()));
  auto& evals = *history->mutable_evals();
  evals.erase(std::remove_if(evals.begin(), evals.end(),
                             [&](const v1::EvalRecord& eval) { return eval.step() > step; }),
              evals.end());
}

// Appends steps, last values and evaluations; a column that one of the two lacks is not a number
// there.
void Join(const v1::History& more, v1::History* out) {
  const int before = out->steps_size();
  out->mutable_steps()->MergeFrom(more.steps());
  for (const v1::History::Column& column : more.columns()) {
    auto& columns = *out->mutable_columns();
    auto at = std::ranges::find(columns, column.name(), &v1::History::Column::name);
    v1::History::Column* to = at == columns.end() ? out->add_columns() : &*at;
    to->set_name(column.name());
    to->mutable_last()->Resize(before, std::nan(""));
    to->mutable_last()->MergeFrom(column.last());
  }
  for (v1::History::Column& column : *out->mutable_columns())
    column.mutable_last()->Resize(out->steps_size(), std::nan(""));
  out->mutable_evals()->MergeFrom(more.evals());
}

}  // namespace

StatusOr<std::vector<v1::Job>> AttemptsOf(const Api& api, const std::string& job,
                                          const GlobalOptions& options) {
  ASSIGN_OR_RETURN(v1::Job newest, api.GetJob(MakeJobRequest(options, job)));
  std::vector<v1::Job> attempts = {newest};
  if (newest.resumed_from_step() == 0 || newest.checkpoint_path().empty()) return attempts;
  ASSIGN_OR_RETURN(const std::vector<v1::Job> earlier, EarlierJobs(api, newest));
  for (const v1::Job& before : earlier) {
    if (attempts.back().resumed_from_step() == 0) break;
    attempts.push_back(before);
  }
  std::ranges::reverse(attempts);
  return attempts;
}

StatusOr<v1::History> FetchRun(const Api& api, const std::vector<v1::Job>& attempts,
                               const HistoryArgs& args, const GlobalOptions& options) {
  v1::History run;
  for (const v1::Job& attempt : attempts) {
    HistoryArgs one = args;
    one.job = attempt.uid();
    ASSIGN_OR_RETURN(v1::History history, FetchHistory(api, one, options));
    if (&attempt != &attempts.front()) CutAfter(attempt.resumed_from_step(), &run);
    Join(history, &run);
  }
  return run;
}

}  // namespace mt::client
