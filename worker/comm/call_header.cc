// One wording for all implementations that send headers of collectives.
#include "worker/comm/call_header.h"

namespace mt::comm {

Status CheckAgrees(const CallHeader& theirs, std::string_view peer, const CommCall& mine,
                   uint64_t sequence) {
  const CommCall call = theirs.ToCall();
  if (theirs.sequence == sequence && mine.Matches(call)) return OkStatus();
  return base::FailedPrecondition(
      "{} calls {} as its collective {}, this is number {} here; all ranks must make the same "
      "calls",
      peer, call.Describe(), theirs.sequence, sequence);
}

}  // namespace mt::comm
