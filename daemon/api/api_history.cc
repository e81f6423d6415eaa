// Api's answer to who asks for the history of a job: checked and prepared on the core's thread,
// read on another.
#include <algorithm>
#include <utility>

#include "common/rpc/reason.h"
#include "daemon/api/api.h"
#include "daemon/telemetry/history.h"
#include "megatrain/v1/api.pb.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {
namespace {

constexpr int kMaxNames = 256;

void FillHistory(HistoryView view, v1::History* out) {
  const HistoryTable& rows = view.rows;
  out->set_level(rows.level);
  out->mutable_steps()->Assign(rows.steps.begin(), rows.steps.end());
  out->mutable_times_us()->Assign(rows.times_us.begin(), rows.times_us.end());
  out->mutable_epochs()->Assign(rows.epochs.begin(), rows.epochs.end());
  for (const HistoryColumn& column : rows.columns) {
    v1::History::Column* to = out->add_columns();
    to->set_name(column.name);
    to->mutable_last()->Assign(column.last.begin(), column.last.end());
    to->mutable_min()->Assign(column.min.begin(), column.min.end());
    to->mutable_max()->Assign(column.max.begin(), column.max.end());
  }
  out->set_first_step(view.first_step);
  out->set_last_step(view.last_step);
  for (v1::EvalRecord& eval : view.evals) *out->add_evals() = std::move(eval);
}

}  // namespace

StatusOr<Api::HistoryAnswer> Api::QueryHistory(const v1::QueryHistoryRequest& request) {
  ASSIGN_OR_RETURN(const v1::StoredJob* job, Find(request.job()));
  const bool backwards = request.to_step() != 0 && request.from_step() > request.to_step();
  if (request.from_step() < 0 || request.to_step() < 0 || request.since_us() < 0 ||
      request.points() < 0 || request.names_size() > kMaxNames || backwards) {
    return rpc::WithReason(
        base::InvalidArgument(
            "steps {} to {}, since {}, {} points, {} names: none may be negative, "
            "the range not backwards, the names at most {}",
            request.from_step(), request.to_step(), request.since_us(), request.points(),
            request.names_size(), kMaxNames),
        rpc::reason::kInvalidRequest);
  }
  const History* history = parts_.feeds->history();
  return HistoryAnswer([history, uid = job->job().uid(), request](v1::History* out) {
    if (history == nullptr) return;
    FillHistory(history->Query(uid, {.from_step = request.from_step(),
                                     .to_step = request.to_step(),
                                     .since_us = request.since_us(),
                                     .points = request.points(),
                                     .names = {request.names().begin(), request.names().end()}}),
                out);
  });
}

}  // namespace mt::daemon
