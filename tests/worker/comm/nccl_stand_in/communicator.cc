// Order, waits and ends; collective.cc and message.cc have what the calls do.
#include "tests/worker/comm/nccl_stand_in/communicator.h"

#include <chrono>
#include <thread>
#include <utility>

namespace mt::comm::stand_in {
namespace {

constexpr int kNumYields = 10;
constexpr std::chrono::microseconds kNap(50);

struct QueuedCall {
  std::function<void()> run;
};

void RunQueued(void* context) {
  const std::unique_ptr<QueuedCall> call(static_cast<QueuedCall*>(context));
  call->run();
}

}  // namespace

Communicator::Communicator(int num_ranks, int rank, const Knobs& knobs)
    : num_ranks_(num_ranks),
      rank_(rank),
      knobs_(knobs),
      num_sends_(static_cast<size_t>(num_ranks)),
      num_recvs_(num_sends_.size()),
      num_received_(num_sends_.size()) {}

NcclResult Communicator::Join(const NcclUniqueId& id) {
  if (!room_.Open(id)) return NcclResult::kSystemError;
  int expected = 0;
  if (!room_->num_ranks.compare_exchange_strong(expected, num_ranks_) && expected != num_ranks_) {
    return NcclResult::kInvalidUsage;
  }
  if (room_->seats[static_cast<size_t>(rank_)].taken.exchange(1) != 0) {
    return NcclResult::kInvalidUsage;
  }
  ++room_->num_joined;
  while (room_->num_joined < num_ranks_) std::this_thread::sleep_for(kNap);
  return NcclResult::kSuccess;
}

NcclResult Communicator::Enqueue(const Queue& queue, const Collective& call) {
  return Put(queue, [this, call] { return RunCollective(call); });
}

NcclResult Communicator::Enqueue(const Queue& queue, const std::vector<Message>& messages) {
  const NcclResult connected = Connect(messages);
  if (connected != NcclResult::kSuccess) return connected;
  return Put(queue, [this, messages] { return RunMessages(messages); });
}

NcclResult Communicator::Connect(const std::vector<Message>& messages) {
  {
    const std::lock_guard lock(mu_);
    ++num_connecting_;
  }
  const auto me = static_cast<size_t>(rank_);
  bool connected = true;
  for (const Message& message : messages) {
    const auto peer = static_cast<size_t>(message.peer);
    (message.is_send ? room_->edges[me][peer].has_sender : room_->edges[peer][me].has_receiver) = 1;
  }
  for (const Message& message : messages) {
    const auto peer = static_cast<size_t>(message.peer);
    const std::atomic<uint32_t>& other =
        message.is_send ? room_->edges[me][peer].has_receiver : room_->edges[peer][me].has_sender;
    connected = connected && WaitUntil([&other] { return other != 0; });
  }
  const std::lock_guard lock(mu_);
  --num_connecting_;
  left_.notify_all();
  return connected ? NcclResult::kSuccess : NcclResult::kInternalError;
}

NcclResult Communicator::Put(const Queue& queue, Body body) {
  const NcclResult error = Error();
  if (error != NcclResult::kSuccess) return error;
  // Held while it is enqueued: turns are in the order of queues.
  const std::lock_guard lock(mu_);
  const int64_t number = num_calls_;
  if (aborted_) return NcclResult::kInvalidUsage;
  if (number == knobs_.refuse) return NcclResult::kUnhandledCudaError;
  ++num_calls_;
  auto call = std::make_unique<QueuedCall>();
  call->run = [this, number, body = std::move(body)] { Run(number, body); };
  queue.enqueue(queue.self, RunQueued, call.release());
  return NcclResult::kSuccess;
}

void Communicator::Run(int64_t number, const Body& body) {
  bool go = WaitUntil([this, number] { return num_finished_ == number; });
  const bool fails = knobs_.error != Knobs::kNever && number >= knobs_.error;
  if (go && (fails || number == knobs_.hang)) go = Hang();
  if (go && body()) num_finished_ = number + 1;
  const std::lock_guard lock(mu_);
  ++num_left_;
  left_.notify_all();
}

bool Communicator::WaitUntil(const std::function<bool()>& done) {
  for (int looks = 0; !aborted_; ++looks) {
    if (done()) return true;
    if (looks < kNumYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
  return false;
}

NcclResult Communicator::Error() {
  if (knobs_.error == Knobs::kNever || num_finished_ < knobs_.error) return NcclResult::kSuccess;
  return NcclResult::kRemoteError;
}

void Communicator::Drain() {
  std::unique_lock lock(mu_);
  left_.wait(lock, [this] { return num_left_ == num_calls_ && num_connecting_ == 0; });
}

void Communicator::Abort() {
  {
    // Nothing is put on a queue from here on.
    const std::lock_guard lock(mu_);
    aborted_ = true;
  }
  Drain();
  std::this_thread::sleep_for(std::chrono::milliseconds(knobs_.abort_ms));
}

}  // namespace mt::comm::stand_in
