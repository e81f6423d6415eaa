// The collectives themselves are loops over members, since all inputs are in one memory.
#include "tests/worker/async/async_room.h"

#include <cstring>
#include <utility>

#include "worker/comm/reduce.h"

namespace mt::comm {
namespace {

using Call = ProcessGroup::Call;

void CopyBytes(void* to, const void* from, int64_t bytes) {
  if (to != from && bytes > 0) std::memmove(to, from, static_cast<size_t>(bytes));
}

void* At(void* data, int64_t bytes) { return static_cast<std::byte*>(data) + bytes; }

std::vector<const void*> Inputs(const Collective& all, int64_t offset) {
  std::vector<const void*> inputs;
  inputs.reserve(all.calls.size());
  for (const Call& call : all.calls)
    inputs.push_back(static_cast<const std::byte*>(call.in) + offset);
  return inputs;
}

void CheckSame(const Collective& all) {
  const Call& first = all.calls.front();
  for (const Call& call : all.calls) {
    if (first.op == CommOp::kSend) {
      if (call.count == first.count && call.dtype == first.dtype) continue;
    } else if (call.Matches(first)) {
      continue;
    }
    throw kernels::DeviceError(fmt::format("{}: one member calls {}, another {}", all.what,
                                           first.Describe(), call.Describe()));
  }
}

void RunAllReduce(const Collective& all) {
  const Call& first = all.calls.front();
  std::vector<std::byte> sum(static_cast<size_t>(first.Bytes()));
  ReduceAllShards(Inputs(all, 0), sum.data(), first.count,
                  {.dtype = first.dtype, .op = first.reduce});
  for (const Call& call : all.calls) CopyBytes(call.out, sum.data(), first.Bytes());
}

// Member `rank`'s part of every other collective.
void RunMember(const Collective& all, int rank) {
  const Call& call = all.calls[static_cast<size_t>(rank)];
  const std::vector<const void*> inputs = Inputs(
      all,
      call.op == CommOp::kAllToAll || call.op == CommOp::kReduceScatter ? rank * call.Bytes() : 0);
  switch (call.op) {
    case CommOp::kReduceScatter:
      ReduceInOrder(inputs, rank, call.out, call.count, {.dtype = call.dtype, .op = call.reduce});
      break;
    case CommOp::kAllGather:
    case CommOp::kAllToAll:
      for (size_t peer = 0; peer < inputs.size(); ++peer)
        CopyBytes(At(call.out, static_cast<int64_t>(peer) * call.Bytes()), inputs[peer],
                  call.Bytes());
      break;
    case CommOp::kBroadcast:
      CopyBytes(call.out, all.calls[static_cast<size_t>(call.peer)].in, call.Bytes());
      break;
    case CommOp::kRecv:
      CopyBytes(call.out, all.calls.front().in, call.Bytes());
      break;
    case CommOp::kAllReduce:
    case CommOp::kBarrier:
    case CommOp::kSend:
      break;
  }
}

}  // namespace

void RunCollective(const Collective& all) {
  CheckSame(all);
  if (all.calls.front().count == 0) return;
  if (all.calls.front().op == CommOp::kAllReduce) return RunAllReduce(all);
  for (size_t rank = 0; rank < all.calls.size(); ++rank) RunMember(all, static_cast<int>(rank));
}

StatusOr<bool> AsyncRoom::Join(const GroupSpec& spec) {
  const base::MutexLock lock(&mu_);
  if (spec.members != members_)
    return base::FailedPrecondition("group {}: members name different members", name_);
  auto joined = joined_[static_cast<size_t>(spec.my_index)];
  if (joined)
    return base::FailedPrecondition("group {}: rank {} joins twice", name_, spec.my_index);
  joined = true;
  return ++num_joined_ == members_.size();
}

std::shared_ptr<Collective> AsyncRoom::MakeCollective(size_t size, const Call& first) const {
  auto all = std::make_shared<Collective>();
  all->what = fmt::format("{} of group {}", first.Describe(), name_);
  all->queues.resize(size, nullptr);
  all->calls.resize(size);
  all->run = [raw = all.get()] { RunCollective(*raw); };
  return all;
}

std::shared_ptr<Collective> AsyncRoom::Next(int member, const Call& call) {
  const base::MutexLock lock(&mu_);
  const int64_t number = num_calls_[static_cast<size_t>(member)]++;
  std::shared_ptr<Collective>& open = collectives_[number];
  if (open == nullptr) open = MakeCollective(members_.size(), call);
  std::shared_ptr<Collective> all = open;
  all->calls[static_cast<size_t>(member)] = call;
  if (++all->num_known == members_.size()) collectives_.erase(number);
  return all;
}

AsyncRoom::Ends AsyncRoom::NextMessage(const Edge& edge, bool sends, int window) {
  const base::MutexLock lock(&mu_);
  const int64_t number = num_messages_[{edge, sends}]++;
  const auto at = [&](int64_t n) EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    std::shared_ptr<Message>& message = messages_[{edge, n}];
    if (message == nullptr) {
      message = std::make_shared<Message>();
      message->sent->where = fmt::format("message {} from {} to {} on edge {} of {}", n, edge.from,
                                         edge.to, edge.edge, name_);
      message->received->where = "the receipt of " + message->sent->where;
      if (window == 0)
        message->pair =
            MakeCollective(2, {.op = CommOp::kSend, .peer = edge.to, .edge = edge.edge});
    }
    return message;
  };
  Ends ends{.message = at(number)};
  if (sends && window > 0 && number >= window) ends.before = at(number - window);
  return ends;
}

}  // namespace mt::comm
