// Every round repeats the call's header: 24 bytes, and no round can be taken for another's.
#include "worker/comm/shm/rounds.h"

#include <utility>

namespace mt::comm {

ShmRounds::ShmRounds(GroupSpec spec, ShmSegment* segment, ShmWaits* waits)
    : spec_(std::move(spec)), segment_(segment), waits_(waits) {}

Status ShmRounds::Meet(const ProcessGroup::Call& call, uint64_t sequence,
                       base::MonotonicTime deadline) {
  const auto parity = static_cast<size_t>(num_met_ % 2);
  MemberBlock& me = segment_->member(spec_.my_index);
  me.openings[parity] = CallHeader(call, sequence);
  ++num_met_;
  me.rounds.store(num_met_);
  waits_->RingAll();
  for (int hop = 1; hop < size(); ++hop) {
    const int peer = (spec_.my_index + hop) % size();
    RETURN_IF_ERROR(waits_->Await(segment_->member(peer).rounds, num_met_, peer, deadline));
  }
  for (int peer = 0; peer < size(); ++peer) {
    const CallHeader& header = segment_->member(peer).openings[parity];
    if (header.sequence == sequence && call.Matches(header.ToCall())) continue;
    return base::FailedPrecondition(
        "rank {} (world {}) calls {} as its collective {}, this is number {} here; all ranks must "
        "make the same calls",
        peer, spec_.members[static_cast<size_t>(peer)], header.ToCall().Describe(), header.sequence,
        sequence);
  }
  return OkStatus();
}

}  // namespace mt::comm
