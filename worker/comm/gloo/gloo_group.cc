// Chooses the algorithm of a call: messages go to the mailbox, small collectives travel in their
// opening, bulk ones by ring.h after the openings of those members whose data will arrive here.
#include "worker/comm/gloo/gloo_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "worker/comm/bytes.h"

namespace mt::comm {
namespace {

// Limit of the bytes sent in a small collective. One exchange then replaces three, each of which
// costs up to a scheduler time slice on a host with more ranks than cores. A payload is sent to
// every peer, which moves more bytes than a ring (except with two members), so the limit applies to
// the sum over all peers.
constexpr int64_t kInlineTotalBytes = 512 << 10;

int64_t InlineLimit(int num_members) {
  return std::max(kInlineBytes, kInlineTotalBytes / std::max(1, num_members - 1));
}

}  // namespace

GlooGroup::GlooGroup(GroupSpec spec, CommConfig config, std::unique_ptr<GlooMesh> mesh)
    : ProcessGroup(std::move(spec), std::move(config)),
      mesh_(std::move(mesh)),
      mailbox_(mesh_.get()),
      inline_limit_(InlineLimit(size())),
      outbox_(static_cast<size_t>(kHeaderBytes + inline_limit_)),
      openings_(static_cast<size_t>(size())),
      inboxes_(static_cast<size_t>(size())) {
  for (const int peer : Peers()) {
    openings_[static_cast<size_t>(peer)] =
        mesh_->Register(outbox_.data(), static_cast<int64_t>(outbox_.size()));
    Inbox& inbox = inboxes_[static_cast<size_t>(peer)];
    for (size_t i = 0; i < 2; ++i) {
      inbox.bytes[i].resize(outbox_.size());
      inbox.buffers[i] =
          mesh_->Register(inbox.bytes[i].data(), static_cast<int64_t>(outbox_.size()));
    }
    PostInbox(peer);
  }
}

std::vector<int> GlooGroup::Peers() const {
  std::vector<int> peers;
  for (int hop = 1; hop < size(); ++hop) peers.push_back((rank() + hop) % size());
  return peers;
}

void GlooGroup::PostInbox(int peer) {
  Inbox& inbox = inboxes_[static_cast<size_t>(peer)];
  const auto turn = static_cast<size_t>(inbox.posted);
  inbox.post_status =
      mesh_->PostRecv(*inbox.buffers[turn], peer, kOpeningSlot,
                      {.offset = 0, .bytes = static_cast<int64_t>(inbox.bytes[turn].size())});
}

Status GlooGroup::SendOpening(const Call& call, int64_t bytes, const std::vector<int>& receivers) {
  const CallHeader header(call, num_collectives_);
  std::memcpy(outbox_.data(), &header, sizeof(header));
  if (bytes > 0) CopyBytes(outbox_.data() + kHeaderBytes, call.in, bytes);
  for (const int peer : receivers) {
    RETURN_IF_ERROR(mesh_->PostSend(*openings_[static_cast<size_t>(peer)], peer, kOpeningSlot,
                                    {.offset = 0, .bytes = kHeaderBytes + bytes}));
  }
  return OkStatus();
}

Status GlooGroup::EndOpening(const std::vector<int>& receivers, base::MonotonicTime deadline) {
  for (const int peer : receivers) {
    RETURN_IF_ERROR(mesh_->WaitSend(*openings_[static_cast<size_t>(peer)], peer, deadline));
  }
  return OkStatus();
}

Status GlooGroup::TakeOpenings(const Call& call, const std::vector<int>& senders,
                               base::MonotonicTime deadline) {
  for (const int peer : senders) {
    Inbox& inbox = inboxes_[static_cast<size_t>(peer)];
    RETURN_IF_ERROR(inbox.post_status);
    GlooBuffer& buffer = *inbox.buffers[static_cast<size_t>(inbox.posted)];
    RETURN_IF_ERROR(mesh_->WaitRecv(buffer, peer, deadline));
    inbox.posted = 1 - inbox.posted;
    PostInbox(peer);
    CallHeader header;
    std::memcpy(&header, payload(peer) - kHeaderBytes, sizeof(header));
    RETURN_IF_ERROR(CheckAgrees(header, DescribePeer(peer), call, num_collectives_));
  }
  return OkStatus();
}

// The payload is in the buffer that is not posted at present.
const std::byte* GlooGroup::payload(int peer) const {
  const Inbox& inbox = inboxes_[static_cast<size_t>(peer)];
  return inbox.bytes[static_cast<size_t>(1 - inbox.posted)].data() + kHeaderBytes;
}

int64_t GlooGroup::InlineBytes(const Call& call) const {
  const bool has_shards = call.op == CommOp::kReduceScatter || call.op == CommOp::kAllToAll;
  const int64_t bytes = call.Bytes() * (has_shards ? size() : 1);
  return bytes <= inline_limit_ ? bytes : -1;
}

Status GlooGroup::DoCall(kernels::Stream& /*stream*/, const Call& call,
                         base::MonotonicTime deadline) {
  if (call.op == CommOp::kSend) return mailbox_.Send(call, deadline);
  if (call.op == CommOp::kRecv) return mailbox_.Recv(call, deadline);
  const int64_t inline_bytes = InlineBytes(call);
  Status status = inline_bytes >= 0 ? SmallCollective(call, inline_bytes, deadline)
                                    : BulkCollective(call, deadline);
  ++num_collectives_;
  return status;
}

Status GlooGroup::SmallCollective(const Call& call, int64_t bytes, base::MonotonicTime deadline) {
  const std::vector<int> peers = Peers();
  const bool contributes = call.op != CommOp::kBroadcast || call.peer == rank();
  RETURN_IF_ERROR(SendOpening(call, contributes ? bytes : 0, peers));
  std::vector<const void*> payloads(static_cast<size_t>(size()));
  payloads[static_cast<size_t>(rank())] = call.in;
  RETURN_IF_ERROR(TakeOpenings(call, peers, deadline));
  for (const int peer : peers) payloads[static_cast<size_t>(peer)] = payload(peer);
  // Ends before the result is written, which may overwrite the input; outbox_ holds a copy of it.
  RETURN_IF_ERROR(EndOpening(peers, deadline));
  if (call.count > 0) CombineSmall(call, payloads);
  return OkStatus();
}

void GlooGroup::CombineSmall(const Call& call, const std::vector<const void*>& payloads) {
  const ReduceType type{.dtype = call.dtype, .op = call.reduce};
  const int64_t bytes = call.Bytes();
  const int64_t own_offset = rank() * bytes;
  switch (call.op) {
    case CommOp::kAllReduce:
      return ReduceAllShards(payloads, call.out, call.count, type);
    case CommOp::kReduceScatter: {
      std::vector<const void*> shards;
      shards.reserve(payloads.size());
      for (const void* payload : payloads) shards.push_back(At(payload, own_offset));
      return ReduceInOrder(shards, rank(), call.out, call.count, type);
    }
    case CommOp::kAllGather:
      for (int peer = 0; peer < size(); ++peer) {
        CopyBytes(At(call.out, peer * bytes), payloads[static_cast<size_t>(peer)], bytes);
      }
      return;
    case CommOp::kAllToAll:
      for (int peer = 0; peer < size(); ++peer) {
        CopyBytes(At(call.out, peer * bytes), At(payloads[static_cast<size_t>(peer)], own_offset),
                  bytes);
      }
      return;
    case CommOp::kBroadcast:
      return CopyBytes(call.out, payloads[static_cast<size_t>(call.peer)], bytes);
    case CommOp::kBarrier:
    case CommOp::kSend:
    case CommOp::kRecv:
      return;
  }
}

Status GlooGroup::BulkCollective(const Call& call, base::MonotonicTime deadline) {
  const int next = (rank() + 1) % size();
  const int previous = (rank() + size() - 1) % size();
  // A member whose data arrives here must have agreed on the call first: every member in algorithms
  // where all send to all, otherwise only the left neighbour in the ring.
  const bool from_all =
      call.op == CommOp::kAllToAll ||
      (IsHalf(call.dtype) && (call.op == CommOp::kAllReduce || call.op == CommOp::kReduceScatter));
  const std::vector<int> receivers = from_all ? Peers() : std::vector<int>{next};
  const std::vector<int> senders = from_all ? Peers() : std::vector<int>{previous};
  RETURN_IF_ERROR(SendOpening(call, 0, receivers));
  RETURN_IF_ERROR(TakeOpenings(call, senders, deadline));
  RETURN_IF_ERROR(EndOpening(receivers, deadline));

  scratch_.resize(static_cast<size_t>(kScratchBytes));
  const Transfer transfer{.mesh = mesh_.get(),
                          .my_index = rank(),
                          .num_members = size(),
                          .deadline = deadline,
                          .scratch = scratch_.data()};
  const ShardCut shards{.count = call.count * size(), .num_shards = size()};
  switch (call.op) {
    case CommOp::kAllReduce:
      return BulkAllReduce(transfer, call);
    case CommOp::kReduceScatter:
      return IsHalf(call.dtype) ? DirectReduceScatter(transfer, call.in, call.out, shards,
                                                      {.dtype = call.dtype, .op = call.reduce})
                                : RingReduceScatter(transfer, call.in, call.out, shards,
                                                    {.dtype = call.dtype, .op = call.reduce});
    case CommOp::kAllGather:
      CopyBytes(At(call.out, rank() * call.Bytes()), call.in, call.Bytes());
      return RingAllGather(transfer, call.out, shards, kernels::SizeOf(call.dtype));
    case CommOp::kBroadcast:
      return ChainBroadcast(transfer, call.out, call.Bytes(), call.peer);
    case CommOp::kAllToAll:
      return PairwiseAllToAll(transfer, call.in, call.out, call.Bytes());
    case CommOp::kBarrier:
    case CommOp::kSend:
    case CommOp::kRecv:
      break;
  }
  return base::Internal("no bulk form of {}", call.Describe());
}

Status GlooGroup::BulkAllReduce(const Transfer& transfer, const Call& call) {
  const ReduceType type{.dtype = call.dtype, .op = call.reduce};
  const ShardCut cut{.count = call.count, .num_shards = size()};
  const int64_t element = kernels::SizeOf(call.dtype);
  void* own_shard = At(call.out, cut.Begin(rank()) * element);
  RETURN_IF_ERROR(IsHalf(call.dtype) ? DirectReduceScatter(transfer, call.in, own_shard, cut, type)
                                     : RingReduceScatter(transfer, call.in, own_shard, cut, type));
  return RingAllGather(transfer, call.out, cut, element);
}

}  // namespace mt::comm
