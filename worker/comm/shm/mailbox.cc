// Each counter has one writer, which reads its own without order.
#include "worker/comm/shm/mailbox.h"

#include <cstring>

namespace mt::comm {

Status ShmMailbox::Send(const ProcessGroup::Call& call, base::MonotonicTime deadline) {
  RETURN_IF_ERROR(waits_->CheckPeer(call.peer));
  constexpr auto kWindow = static_cast<uint64_t>(ProcessGroup::kSendWindow);
  EdgeRing& ring = segment_->edge(my_index_, call.peer, call.edge);
  const uint64_t number = ring.sent.load(std::memory_order_relaxed);
  if (number >= kWindow) {
    RETURN_IF_ERROR(waits_->Await(ring.taken, number - kWindow + 1, call.peer, deadline));
  }
  const int64_t bytes = call.Bytes();
  const ShmOutbox::Block block = outbox_.Allocate(call.peer, call.edge, number, bytes);
  if (bytes > 0) {
    ASSIGN_OR_RETURN(std::byte* const arena, segment_->Arena(my_index_, block.offset + bytes));
    std::memcpy(arena + block.offset, call.in, static_cast<size_t>(bytes));
  }
  ring.letters[number % kWindow] = {.header = CallHeader(call, number), .offset = block.offset};
  ring.sent.store(number + 1);
  waits_->Ring(call.peer);
  return OkStatus();
}

Status ShmMailbox::Recv(const ProcessGroup::Call& call, base::MonotonicTime deadline) {
  EdgeRing& ring = segment_->edge(call.peer, my_index_, call.edge);
  const uint64_t number = ring.taken.load(std::memory_order_relaxed);
  RETURN_IF_ERROR(waits_->Await(ring.sent, number + 1, call.peer, deadline));
  const Letter& letter = ring.letters[number % ring.letters.size()];
  const CallHeader& header = letter.header;
  if (header.count != call.count || header.dtype != call.dtype || header.sequence != number) {
    return base::FailedPrecondition(
        "the sender's message {} is {} {}, this is receive {}; both ends must agree",
        header.sequence, header.count, kernels::Name(header.dtype), number);
  }
  const int64_t bytes = call.Bytes();
  if (bytes > 0) {
    ASSIGN_OR_RETURN(const std::byte* const arena,
                     segment_->Arena(call.peer, letter.offset + bytes));
    std::memcpy(call.out, arena + letter.offset, static_cast<size_t>(bytes));
  }
  ring.taken.store(number + 1);
  waits_->Ring(call.peer);
  return OkStatus();
}

}  // namespace mt::comm
