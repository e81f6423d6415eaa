// Ranks that show no progress: their events, and the job's condition "NoProgress". Nothing ends for
// it; which rank the others wait for is the operator's to see. Core thread.
#pragma once

#include <string>

#include "daemon/ledger/ledger.h"

namespace megatrain::v1 {
class RankStatus;
}

namespace mt::daemon {

// What its worker says of this rank has just been taken over; `before`: what was known until then.
void NoteStall(Ledger* ledger, v1::StoredJob& stored, int rank, const v1::RankStatus& before);

// The ranks of this node are not heard any more: what was said of them is no news.
void ForgetStalls(Ledger* ledger, v1::StoredJob& stored, const std::string& node);

}  // namespace mt::daemon
