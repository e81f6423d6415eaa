// The numbers of a worker's reports: each is taken once, in order, and none is passed over in
// silence. A worker numbers its reports from 1 at every start of its process and keeps them until
// they are acknowledged; what it gave up to bound its memory is covered by a marker
// (WorkerMessage.first_seq), what it does not keep any more it says when it registers
// (Register.lowest_seq). Pure.
#pragma once

#include <cstdint>

namespace megatrain::v1 {
class Register;
class StoredWorker;
class WorkerMessage;
}  // namespace megatrain::v1

namespace mt::daemon {

namespace v1 = megatrain::v1;

// How many reports were lost that a registering worker does not keep any more. Sets
// `worker->acked_seq`, given that of the former registration where it was the same process (else
// 0): afterwards the worker's next report follows upon it.
int64_t BeginReports(const v1::Register& hello, v1::StoredWorker* worker);

enum class ReportOrder {
  kNext,      // to be taken; acked_seq and dropped_steps are moved on
  kRepeated,  // it was taken before
  kRefused,   // it does not follow upon the last one taken
};

// Of a message whose seq is not 0.
ReportOrder OrderOfReport(const v1::WorkerMessage& message, v1::StoredWorker* worker);

}  // namespace mt::daemon
