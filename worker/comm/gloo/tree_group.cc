// Two messages an edge and direction at most: upwards the call and what the subtree gives, which
// the parent takes only after it has seen that the calls agree; downwards the result, or a byte
// where there is none.
#include "worker/comm/gloo/tree_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "worker/comm/bytes.h"
#include "worker/comm/call_header.h"
#include "worker/comm/reduce.h"

namespace mt::comm {
namespace {

constexpr uint64_t kCallSlot = kOpeningSlot;
constexpr uint64_t kRiseSlot = kLaneSlot;
constexpr uint64_t kFallSlot = kLaneSlot + 1;

int64_t SizeOf(const std::vector<std::byte>& bytes) { return static_cast<int64_t>(bytes.size()); }

// Bytes that a call gives to each member.
int64_t ResultBytes(const CommCall& call, int num_members) {
  return call.Bytes() * (call.op == CommOp::kAllGather ? num_members : 1);
}

// Messages of one slot to or from several peers at once.
class Batch {
 public:
  explicit Batch(GlooMesh* mesh) : mesh_(mesh) {}

  // Post, and Wait for all; nothing where `bytes` is 0.
  Status Recv(void* data, int64_t bytes, int peer, uint64_t slot) {
    if (bytes == 0) return OkStatus();
    GlooBuffer& buffer = Add(data, bytes, peer, /*sends=*/false);
    return mesh_->PostRecv(buffer, peer, slot, {.offset = 0, .bytes = bytes});
  }
  Status Send(const void* data, int64_t bytes, int peer, uint64_t slot) {
    if (bytes == 0) return OkStatus();
    GlooBuffer& buffer = Add(data, bytes, peer, /*sends=*/true);
    return mesh_->PostSend(buffer, peer, slot, {.offset = 0, .bytes = bytes});
  }
  Status Wait(base::MonotonicTime deadline) {
    for (const Message& message : messages_) {
      RETURN_IF_ERROR(message.sends ? mesh_->WaitSend(*message.buffer, message.peer, deadline)
                                    : mesh_->WaitRecv(*message.buffer, message.peer, deadline));
    }
    return OkStatus();
  }

 private:
  struct Message {
    std::unique_ptr<GlooBuffer> buffer;
    int peer = 0;
    bool sends = false;
  };

  GlooBuffer& Add(const void* data, int64_t bytes, int peer, bool sends) {
    messages_.push_back({.buffer = mesh_->Register(data, bytes), .peer = peer, .sends = sends});
    return *messages_.back().buffer;
  }

  GlooMesh* const mesh_;
  std::vector<Message> messages_;
};

}  // namespace

TreeGroup::TreeGroup(GroupSpec spec, CommConfig config, std::unique_ptr<GlooMesh> mesh)
    : ProcessGroup(std::move(spec), std::move(config)),
      mesh_(std::move(mesh)),
      place_(PlaceInTree(rank(), size())) {}

StatusOr<std::unique_ptr<ProcessGroup>> TreeGroup::Create(
    const std::shared_ptr<gloo::transport::Device>& device, GroupSpec spec, CommConfig config,
    RendezvousStore* store, base::MonotonicTime deadline) {
  const auto num_members = static_cast<int>(spec.members.size());
  ASSIGN_OR_RETURN(std::unique_ptr<GlooMesh> mesh,
                   GlooMesh::Connect(device, spec, store, deadline, [num_members](int member) {
                     return TreePeers(member, num_members);
                   }));
  std::unique_ptr<TreeGroup> group(
      new TreeGroup(std::move(spec), std::move(config), std::move(mesh)));
  // Each has met its neighbours. A barrier's way is a meeting of all.
  const Status met = group->RiseAndFall({.op = CommOp::kBarrier}, deadline);
  if (!met.ok()) return base::Annotate(met, fmt::format("{}: meeting", group->Describe()));
  return group;
}

int64_t TreeGroup::GivenBytes(const Call& call, int begin, int end) const {
  if (call.op != CommOp::kBroadcast) return call.Bytes() * (end - begin);
  return call.peer >= begin && call.peer < end ? call.Bytes() : 0;
}

Status TreeGroup::DoCall(kernels::Stream& /*stream*/, const Call& call,
                         base::MonotonicTime deadline) {
  return RiseAndFall(call, deadline);
}

Status TreeGroup::RiseAndFall(const Call& call, base::MonotonicTime deadline) {
  std::vector<std::byte> given;
  RETURN_IF_ERROR(Rise(call, deadline, &given));
  ++num_calls_;
  if (place_.parent < 0) Combine(call, given);
  return Fall(call, deadline);
}

Status TreeGroup::Rise(const Call& call, base::MonotonicTime deadline,
                       std::vector<std::byte>* given) {
  RETURN_IF_ERROR(TakeCallsOfChildren(call, deadline));
  given->resize(static_cast<size_t>(GivenBytes(call, rank(), place_.end)));
  CopyBytes(given->data(), call.in, GivenBytes(call, rank(), rank() + 1));
  Batch children(mesh_.get());
  for (size_t i = 0; i < place_.children.size(); ++i) {
    const int child = place_.children[i];
    RETURN_IF_ERROR(children.Recv(At(given->data(), GivenBytes(call, rank(), child)),
                                  GivenBytes(call, child, place_.EndOf(i)), child, kRiseSlot));
  }
  RETURN_IF_ERROR(children.Wait(deadline));
  if (place_.parent < 0) return OkStatus();
  const CallHeader mine(call, num_calls_);
  Batch parent(mesh_.get());
  RETURN_IF_ERROR(parent.Send(&mine, kHeaderBytes, place_.parent, kCallSlot));
  RETURN_IF_ERROR(parent.Send(given->data(), SizeOf(*given), place_.parent, kRiseSlot));
  return parent.Wait(deadline);
}

Status TreeGroup::TakeCallsOfChildren(const Call& call, base::MonotonicTime deadline) {
  std::vector<CallHeader> headers(place_.children.size());
  Batch children(mesh_.get());
  for (size_t i = 0; i < headers.size(); ++i) {
    RETURN_IF_ERROR(children.Recv(&headers[i], kHeaderBytes, place_.children[i], kCallSlot));
  }
  RETURN_IF_ERROR(children.Wait(deadline));
  for (size_t i = 0; i < headers.size(); ++i) {
    RETURN_IF_ERROR(CheckAgrees(headers[i], DescribePeer(place_.children[i]), call, num_calls_));
  }
  return OkStatus();
}

void TreeGroup::Combine(const Call& call, const std::vector<std::byte>& given) const {
  if (call.op != CommOp::kAllReduce) return CopyBytes(call.out, given.data(), SizeOf(given));
  std::vector<const void*> inputs;
  inputs.reserve(static_cast<size_t>(size()));
  for (int member = 0; member < size(); ++member) {
    inputs.push_back(At(given.data(), member * call.Bytes()));
  }
  ReduceAllShards(inputs, call.out, call.count, {.dtype = call.dtype, .op = call.reduce});
}

Status TreeGroup::Fall(const Call& call, base::MonotonicTime deadline) {
  const int64_t bytes = ResultBytes(call, size());
  std::byte nothing{};
  void* const result = bytes > 0 ? call.out : &nothing;
  const int64_t result_bytes = std::max<int64_t>(bytes, 1);
  if (place_.parent >= 0) {
    Batch parent(mesh_.get());
    RETURN_IF_ERROR(parent.Recv(result, result_bytes, place_.parent, kFallSlot));
    RETURN_IF_ERROR(parent.Wait(deadline));
  }
  Batch children(mesh_.get());
  for (const int child : place_.children) {
    RETURN_IF_ERROR(children.Send(result, result_bytes, child, kFallSlot));
  }
  return children.Wait(deadline);
}

}  // namespace mt::comm
