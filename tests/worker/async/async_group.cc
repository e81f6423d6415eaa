// A group turns each call into one of the world's.
#include "tests/worker/async/async_group.h"

#include <cstring>
#include <utility>

#include "kernels/async/async_device.h"
#include "tests/worker/async/async_room.h"

namespace mt::comm {
namespace {

using kernels::async::Access;
using kernels::async::AsyncCall;
using kernels::async::AsyncStream;
using kernels::async::AsyncWorld;
using kernels::async::MemoryUse;

class AsyncGroup final : public ProcessGroup {
 public:
  AsyncGroup(GroupSpec spec, const AsyncHub::Args& args, std::shared_ptr<AsyncRoom> room)
      : ProcessGroup(std::move(spec), args.config),
        world_(args.world),
        window_(args.send_window),
        own_queue_(args.on_host ? args.world->Open(WorldRank(rank())) : nullptr),
        room_(std::move(room)) {}
  ~AsyncGroup() override { listener().Drop(); }

 private:
  Status DoCall(kernels::Stream& stream, const Call& call,
                base::MonotonicTime /*deadline*/) override;
  void OnBroken() override { world_->Cancel(room_->broken().get()); }

  // What this member's part of the call reads and writes.
  std::vector<MemoryUse> Uses(const Call& call) const;
  AsyncCall Queued(const Call& call) const;
  void AsSend(const Call& call, AsyncCall* queued);
  void AsRecv(const Call& call, AsyncCall* queued);

  AsyncWorld* const world_;
  const int window_;
  kernels::async::StreamQueue* const own_queue_;  // of calls that block; nullptr: none does
  const std::shared_ptr<AsyncRoom> room_;
  const char order_ = 0;  // stands for the order of calls: each of them "writes" it
};

std::vector<MemoryUse> AsyncGroup::Uses(const Call& call) const {
  const auto at = [](const void* data, int64_t bytes) {
    return static_cast<const std::byte*>(data) + bytes;
  };
  // In place a member's own shard is read alone.
  if (call.op == CommOp::kAllGather && call.in == at(call.out, rank() * call.Bytes())) {
    return {
        {.name = "in", .data = call.in, .bytes = call.Bytes()},
        {.name = "out", .data = call.out, .bytes = rank() * call.Bytes(), .access = Access::kWrite},
        {.name = "out",
         .data = at(call.in, call.Bytes()),
         .bytes = (size() - 1 - rank()) * call.Bytes(),
         .access = Access::kWrite}};
  }
  const bool all_in = call.op == CommOp::kReduceScatter || call.op == CommOp::kAllToAll;
  const bool all_out = call.op == CommOp::kAllGather || call.op == CommOp::kAllToAll;
  std::vector<MemoryUse> uses;
  const bool is_root = call.op == CommOp::kBroadcast && call.peer == rank();
  if (call.in != nullptr && (call.op != CommOp::kBroadcast || is_root))
    uses.push_back({.name = "in", .data = call.in, .bytes = call.Bytes() * (all_in ? size() : 1)});
  if (call.out != nullptr && !is_root)
    uses.push_back({.name = "out",
                    .data = call.out,
                    .bytes = call.Bytes() * (all_out ? size() : 1),
                    .access = Access::kWrite});
  return uses;
}

AsyncCall AsyncGroup::Queued(const Call& call) const {
  AsyncCall queued{.label = fmt::format("{} {}", Name(call.op), name()),
                   .cancelled = room_->broken()};
  if (own_queue_ != nullptr) return queued;
  queued.uses = Uses(call);
  queued.uses.push_back(
      {.name = "group", .data = &order_, .bytes = sizeof(order_), .access = Access::kWrite});
  return queued;
}

Status AsyncGroup::DoCall(kernels::Stream& stream, const Call& call,
                          base::MonotonicTime /*deadline*/) {
  if (*room_->broken()) return base::Unavailable("a peer broke the group; its log has the cause");
  AsyncCall queued = Queued(call);
  if (call.op == CommOp::kSend) {
    AsSend(call, &queued);
  } else if (call.op == CommOp::kRecv) {
    AsRecv(call, &queued);
  } else {
    queued.meeting = room_->Next(rank(), call);
    queued.member = static_cast<size_t>(rank());
  }
  try {
    if (own_queue_ == nullptr) {
      static_cast<AsyncStream&>(stream).Enqueue(std::move(queued));
    } else {
      world_->Enqueue(own_queue_, std::move(queued));
      world_->Synchronize(own_queue_);
    }
  } catch (const kernels::DeviceError& error) {
    return base::Unavailable("the device has failed: {}", error.what());
  }
  if (own_queue_ != nullptr && *room_->broken())
    return base::Unavailable("a peer broke the group; its log has the cause");
  return OkStatus();
}

void AsyncGroup::AsSend(const Call& call, AsyncCall* queued) {
  const AsyncRoom::Ends ends = room_->NextMessage(
      {.from = rank(), .to = call.peer, .edge = call.edge}, /*sends=*/true, window_);
  const std::shared_ptr<Message> message = ends.message;
  if (message->pair != nullptr) {
    message->pair->calls[0] = call;
    queued->meeting = message->pair;
    return;
  }
  if (ends.before != nullptr)
    queued->after.push_back({.point = ends.before->received, .orders = false});
  queued->reaches = message->sent;
  queued->run = [message, call] {
    const auto* const data = static_cast<const std::byte*>(call.in);
    message->dtype = call.dtype;
    message->count = call.count;
    message->bytes.assign(data, data + call.Bytes());
  };
}

void AsyncGroup::AsRecv(const Call& call, AsyncCall* queued) {
  const std::shared_ptr<Message> message =
      room_
          ->NextMessage({.from = call.peer, .to = rank(), .edge = call.edge}, /*sends=*/false,
                        window_)
          .message;
  if (message->pair != nullptr) {
    message->pair->calls[1] = call;
    queued->meeting = message->pair;
    queued->member = 1;
    return;
  }
  queued->after.push_back({.point = message->sent});
  queued->reaches = message->received;
  queued->run = [message, call] {
    if (message->count != call.count || message->dtype != call.dtype)
      throw kernels::DeviceError(fmt::format("{} arrives as {} {}", call.Describe(), message->count,
                                             kernels::Name(message->dtype)));
    if (call.count > 0)
      std::memcpy(call.out, message->bytes.data(), static_cast<size_t>(call.Bytes()));
    message->bytes = {};
  };
}

}  // namespace

StatusOr<std::unique_ptr<ProcessGroup>> AsyncHub::Create(GroupSpec spec) {
  RETURN_IF_ERROR(CheckSpec(spec));
  const base::MutexLock lock(&mu_);
  std::shared_ptr<AsyncRoom>& open = open_rooms_[spec.name];
  if (open == nullptr) open = std::make_shared<AsyncRoom>(spec.name, spec.members);
  std::shared_ptr<AsyncRoom> room = open;
  ASSIGN_OR_RETURN(const bool complete, room->Join(spec));
  if (complete) open_rooms_.erase(spec.name);
  Args args = args_;
  if (args.host_of)
    args.config.host = args.host_of(spec.members[static_cast<size_t>(spec.my_index)]);
  return std::make_unique<AsyncGroup>(std::move(spec), args, std::move(room));
}

}  // namespace mt::comm
