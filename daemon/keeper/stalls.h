// Ranks that show no progress: their events, and the job's condition "NoProgress". No job is ended
// for it; the operator sees which rank the others wait for. Not thread-safe (the core's thread).
#pragma once

#include <string>

#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class RankStatus;
}

namespace mt::daemon {

// To be called once a worker's report on this rank was taken over; `before` is what was known until
// then.
void NoteStall(Ledger* ledger, v1::StoredJob& stored, int rank, const v1::RankStatus& before);

// The ranks of this node are not heard any more, so what was said of their progress goes.
void ForgetStalls(Ledger* ledger, v1::StoredJob& stored, const std::string& node);

}  // namespace mt::daemon
