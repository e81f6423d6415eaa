// Comparisons of numbers; what follows from them is the session's.
#include "daemon/workers/report_numbers.h"

#include "megatrain/v1/store.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {

int64_t BeginReports(const v1::Register& hello, v1::StoredWorker* worker) {
  if (hello.lowest_seq() <= 0) return 0;  // an agent of a version that does not say
  // A number that this process never gave was not taken from it, whatever the store says: what it
  // keeps is taken.
  const bool unheard_of = worker->acked_seq() > hello.newest_seq();
  const int64_t below = hello.lowest_seq() - 1;
  const int64_t lost = unheard_of ? 0 : below - worker->acked_seq();
  if (unheard_of || lost > 0) worker->set_acked_seq(below);
  return lost > 0 ? lost : 0;
}

ReportOrder OrderOfReport(const v1::WorkerMessage& message, v1::StoredWorker* worker) {
  const int64_t first = message.first_seq() != 0 ? message.first_seq() : message.seq();
  if (first <= 0 || first > message.seq() || message.dropped_steps() < 0) {
    return ReportOrder::kRefused;
  }
  if (message.seq() <= worker->acked_seq()) return ReportOrder::kRepeated;
  if (first > worker->acked_seq() + 1) return ReportOrder::kRefused;
  worker->set_acked_seq(message.seq());
  worker->set_dropped_steps(worker->dropped_steps() + message.dropped_steps());
  return ReportOrder::kNext;
}

}  // namespace mt::daemon
