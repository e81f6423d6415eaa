// Messages: a send begins when its receiver asks for it, and ends when the receiver has it all.
#include <algorithm>
#include <cstring>

#include "tests/worker/comm/nccl_stand_in/communicator.h"

namespace mt::comm::stand_in {

// Returns whether anything moved.
bool Communicator::StepSend(Transfer* transfer) {
  const Message& message = transfer->message;
  Edge& edge = room_->edges[static_cast<size_t>(rank_)][static_cast<size_t>(message.peer)];
  if (edge.wanted < transfer->number || edge.written != edge.read) return false;
  if (transfer->begun && transfer->done_bytes == message.bytes) {
    transfer->done = true;
    return true;
  }
  if (edge.bytes != message.bytes) return false;  // hangs
  // An empty message is one piece too.
  transfer->begun = true;
  const size_t bytes = std::min(kPieceBytes, message.bytes - transfer->done_bytes);
  if (bytes > 0) {
    std::memcpy(edge.piece.data(),
                static_cast<const std::byte*>(message.data) + transfer->done_bytes, bytes);
  }
  transfer->done_bytes += bytes;
  ++edge.written;
  return true;
}

bool Communicator::StepRecv(Transfer* transfer) {
  const Message& message = transfer->message;
  const auto peer = static_cast<size_t>(message.peer);
  Edge& edge = room_->edges[peer][static_cast<size_t>(rank_)];
  if (!transfer->begun) {
    if (num_received_[peer] + 1 != transfer->number) return false;
    edge.bytes = message.bytes;
    edge.wanted = transfer->number;
    transfer->begun = true;
    return true;
  }
  if (edge.written == edge.read) return false;
  const size_t bytes = std::min(kPieceBytes, message.bytes - transfer->done_bytes);
  if (bytes > 0) {
    std::memcpy(static_cast<std::byte*>(message.data) + transfer->done_bytes, edge.piece.data(),
                bytes);
  }
  transfer->done_bytes += bytes;
  if (transfer->done_bytes == message.bytes) {
    ++num_received_[peer];
    transfer->done = true;
  }
  ++edge.read;
  return true;
}

bool Communicator::Step(Transfer* transfer) {
  if (transfer->done) return false;
  return transfer->message.is_send ? StepSend(transfer) : StepRecv(transfer);
}

bool Communicator::RunMessages(const std::vector<Message>& messages) {
  std::vector<Transfer> transfers;
  for (const Message& message : messages) {
    std::vector<uint64_t>& numbers = message.is_send ? num_sends_ : num_recvs_;
    transfers.push_back(
        {.message = message, .number = ++numbers[static_cast<size_t>(message.peer)]});
  }
  const auto all_done = [&] {
    return std::all_of(transfers.begin(), transfers.end(),
                       [](const Transfer& transfer) { return transfer.done; });
  };
  const auto step = [&] {
    bool moved = false;
    for (Transfer& transfer : transfers) moved |= Step(&transfer);
    return moved;
  };
  while (!all_done()) {
    if (!WaitUntil(step)) return false;
  }
  return true;
}

}  // namespace mt::comm::stand_in
