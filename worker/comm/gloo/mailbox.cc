// Header and rest of an edge's messages use two Gloo slots, so that a rest can never be taken for a
// header.
#include "worker/comm/gloo/mailbox.h"

#include <algorithm>
#include <cstring>

namespace mt::comm {
namespace {

uint64_t HeadSlot(int edge) { return kEdgeSlot + 2 * static_cast<uint64_t>(edge); }
uint64_t RestSlot(int edge) { return HeadSlot(edge) + 1; }

}  // namespace

Status GlooMailbox::Send(const ProcessGroup::Call& call, base::MonotonicTime deadline) {
  Outbox& outbox = outboxes_[{call.peer, call.edge}];
  Outgoing& message = outbox.messages[outbox.num_sent % outbox.messages.size()];
  if (message.head != nullptr) {
    RETURN_IF_ERROR(mesh_->WaitSend(*message.head, call.peer, deadline));
  }
  if (message.rest != nullptr) {
    RETURN_IF_ERROR(mesh_->WaitSend(*message.rest, call.peer, deadline));
  }
  message.head.reset();
  message.rest.reset();

  const CallHeader header(call, outbox.num_sent++);
  message.bytes.resize(static_cast<size_t>(kHeaderBytes + call.Bytes()));
  std::memcpy(message.bytes.data(), &header, sizeof(header));
  if (call.count > 0) {
    std::memcpy(message.bytes.data() + kHeaderBytes, call.in, static_cast<size_t>(call.Bytes()));
  }
  const auto total = static_cast<int64_t>(message.bytes.size());
  const int64_t head_bytes = kHeaderBytes + std::min(call.Bytes(), kInlineBytes);
  message.head = mesh_->Register(message.bytes.data(), total);
  RETURN_IF_ERROR(mesh_->PostSend(*message.head, call.peer, HeadSlot(call.edge),
                                  {.offset = 0, .bytes = head_bytes}));
  if (total == head_bytes) return OkStatus();
  message.rest = mesh_->Register(message.bytes.data(), total);
  return mesh_->PostSend(*message.rest, call.peer, RestSlot(call.edge),
                         {.offset = head_bytes, .bytes = total - head_bytes});
}

Status GlooMailbox::Recv(const ProcessGroup::Call& call, base::MonotonicTime deadline) {
  alignas(CallHeader) std::array<std::byte, kHeaderBytes + kInlineBytes> inbox{};
  const std::unique_ptr<GlooBuffer> head = mesh_->Register(inbox.data(), inbox.size());
  RETURN_IF_ERROR(
      mesh_->PostRecv(*head, call.peer, HeadSlot(call.edge), {.offset = 0, .bytes = inbox.size()}));
  RETURN_IF_ERROR(mesh_->WaitRecv(*head, call.peer, deadline));
  CallHeader header;
  std::memcpy(&header, inbox.data(), sizeof(header));
  const uint64_t expected = num_received_[{call.peer, call.edge}]++;
  if (header.count != call.count || header.dtype != call.dtype || header.sequence != expected) {
    return base::FailedPrecondition(
        "the sender's message {} is {} {}, this is receive {}; both ends must agree",
        header.sequence, header.count, kernels::Name(header.dtype), expected);
  }
  const int64_t in_head = std::min(call.Bytes(), kInlineBytes);
  if (in_head > 0) {
    std::memcpy(call.out, inbox.data() + kHeaderBytes, static_cast<size_t>(in_head));
  }
  if (in_head == call.Bytes()) return OkStatus();
  const std::unique_ptr<GlooBuffer> rest = mesh_->Register(call.out, call.Bytes());
  RETURN_IF_ERROR(mesh_->PostRecv(*rest, call.peer, RestSlot(call.edge),
                                  {.offset = in_head, .bytes = call.Bytes() - in_head}));
  return mesh_->WaitRecv(*rest, call.peer, deadline);
}

}  // namespace mt::comm
