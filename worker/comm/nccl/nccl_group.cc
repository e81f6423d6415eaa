// One NCCL call each, but for all-to-all (a group of sends and receives) and barriers.
#include "worker/comm/nccl/nccl_group.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include "common/base/log.h"
#include "worker/comm/bytes.h"

namespace mt::comm {
namespace {

using kernels::DType;
using kernels::Stream;

// So many events are kept at most. Where more calls are under way, the last one moves with them:
// NCCL runs the calls of a communicator one after the other, so it is reached after all of them.
constexpr size_t kMostWatched = 64;
// How long an abort waits for a call of ours that NCCL is in.
constexpr std::chrono::seconds kEnqueueLimit{1};
// How often a call that waits for an abort looks at the status.
constexpr std::chrono::milliseconds kEnqueuePeriod{10};
// How long the destructor waits for calls, how often it looks, and how long it waits for the end of
// the communicator from its beginning on.
constexpr std::chrono::seconds kCallsLimit{2};
constexpr std::chrono::milliseconds kCallsPeriod{1};
constexpr std::chrono::seconds kEndLimit{5};

NcclType TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return NcclType::kF64;
    case DType::kF32:
      return NcclType::kF32;
    case DType::kBf16:
      return NcclType::kBf16;
    case DType::kF16:
      return NcclType::kF16;
    case DType::kI32:
      return NcclType::kI32;
    case DType::kI64:
      return NcclType::kI64;
    case DType::kU8:
      return NcclType::kU8;
  }
  return NcclType::kU8;
}

NcclRedOp OpOf(ReduceOp op) { return op == ReduceOp::kSum ? NcclRedOp::kSum : NcclRedOp::kMax; }

}  // namespace

NcclGroup::NcclGroup(GroupSpec spec, CommConfig config, const Args& args)
    : ProcessGroup(std::move(spec), std::move(config)),
      handle_(std::make_shared<Handle>()),
      library_(args.library),
      comm_(args.comm),
      device_(args.device),
      watch_(args.watch) {
  handle_->library = library_;
  handle_->comm = comm_;
  handle_->device = device_;
  handle_->name = name();
  handle_->word = device_->Allocate(sizeof(int32_t), kernels::MemoryKind::kDevice);
  watch_->Add(this);
}

NcclGroup::~NcclGroup() {
  listener().Drop();
  watch_->Remove(this);
  // NCCL would wait for the calls itself, without an end.
  if (!ending_.joinable()) BeginEnd(/*abort=*/!AwaitCalls());
  if (ended_.wait_until(end_begun_ + kEndLimit) == std::future_status::ready) {
    ending_.join();
  } else {
    ending_.detach();
    log::Warn("a communicator does not end: its peers do not", {{"group", name()}});
  }
}

bool NcclGroup::AwaitCalls() {
  const base::Clock* const clock = base::Clock::Real();
  const base::MonotonicTime limit = clock->Now() + kCallsLimit;
  try {
    while (true) {
      const base::MonotonicTime now = clock->Now();
      {
        const base::MutexLock lock(&calls_mu_);
        DropEnded(now);
        if (in_flight_.empty()) return true;
      }
      if (now >= limit) return false;
      std::this_thread::sleep_for(kCallsPeriod);
    }
  } catch (const kernels::DeviceError&) {
    return false;  // the device has failed: nothing on it ends
  }
}

void NcclGroup::BeginEnd(bool abort) {
  std::packaged_task<void()> task([handle = handle_, abort] { End(handle.get(), abort); });
  ended_ = task.get_future();
  end_begun_ = base::Clock::Real()->Now();
  ending_ = std::thread(std::move(task));
}

void NcclGroup::End(Handle* handle, bool abort) {
  const NcclApi& nccl = handle->library->api;
  handle->device->BindThread();
  // A call that hangs in NCCL ends by the abort alone.
  const bool entered = handle->turn.EnterUntil(base::Clock::Real()->Now() + kEnqueueLimit);
  const NcclResult result = abort ? nccl.comm_abort(handle->comm) : nccl.comm_destroy(handle->comm);
  if (entered) handle->turn.Leave();
  if (result == NcclResult::kSuccess) return;
  const char* const why = nccl.get_error_string(result);
  if (abort) {
    log::Warn("abort of a communicator", {{"group", handle->name}, {"why", why}});
  } else {
    log::Debug("end of a communicator", {{"group", handle->name}, {"why", why}});
  }
}

Status NcclGroup::Check(NcclResult result) const {
  if (result == NcclResult::kSuccess || result == NcclResult::kInProgress) return OkStatus();
  // Of this thread's calls; the communicator may be freed by now.
  const char* const detail = library_->api.get_last_error(nullptr);
  return base::Unavailable("NCCL: {}{}{}", library_->api.get_error_string(result),
                           detail != nullptr && *detail != '\0' ? ": " : "",
                           detail == nullptr ? "" : detail);
}

Status NcclGroup::DoCall(Stream& stream, const Call& call, base::MonotonicTime /*deadline*/) {
  if (call.op == CommOp::kBarrier) return Meet(stream);
  if (call.count == 0) return OkStatus();
  device_->BindThread();
  // An abort has the turn while it runs, and may block.
  while (!handle_->turn.EnterUntil(base::Clock::Real()->Now() + kEnqueuePeriod)) {
    RETURN_IF_ERROR(status());
  }
  const Status enqueued = Enter(call, stream.native());
  handle_->turn.Leave();
  RETURN_IF_ERROR(enqueued);
  Follow(stream, call);
  return OkStatus();
}

Status NcclGroup::Enter(const Call& call, NcclStream stream) {
  RETURN_IF_ERROR(status());  // aborted meanwhile: the communicator is gone
  SetEntered(&call);
  Status enqueued = Enqueue(call, stream);
  SetEntered(nullptr);
  return enqueued;
}

Status NcclGroup::Enqueue(const Call& call, NcclStream stream) const {
  const NcclApi& nccl = library_->api;
  const auto count = static_cast<size_t>(call.count);
  const NcclType type = TypeOf(call.dtype);
  switch (call.op) {
    case CommOp::kAllReduce:
      return Check(
          nccl.all_reduce(call.in, call.out, count, type, OpOf(call.reduce), comm_, stream));
    case CommOp::kReduceScatter:
      return Check(
          nccl.reduce_scatter(call.in, call.out, count, type, OpOf(call.reduce), comm_, stream));
    case CommOp::kAllGather:
      return Check(nccl.all_gather(call.in, call.out, count, type, comm_, stream));
    case CommOp::kBroadcast:
      return Check(nccl.broadcast(call.in, call.out, count, type, call.peer, comm_, stream));
    case CommOp::kSend:
      return Check(nccl.send(call.in, count, type, call.peer, comm_, stream));
    case CommOp::kRecv:
      return Check(nccl.recv(call.out, count, type, call.peer, comm_, stream));
    case CommOp::kAllToAll:
      return Exchange(call, stream);
    case CommOp::kBarrier:
      break;
  }
  return OkStatus();
}

Status NcclGroup::Exchange(const Call& call, NcclStream stream) const {
  const NcclApi& nccl = library_->api;
  const auto count = static_cast<size_t>(call.count);
  const NcclType type = TypeOf(call.dtype);
  RETURN_IF_ERROR(Check(nccl.group_start()));
  Status status;
  for (int peer = 0; peer < size() && status.ok(); ++peer) {
    const int64_t at = peer * call.Bytes();
    status = Check(nccl.send(At(call.in, at), count, type, peer, comm_, stream));
    if (status.ok()) status = Check(nccl.recv(At(call.out, at), count, type, peer, comm_, stream));
  }
  const Status ended = Check(nccl.group_end());
  return status.ok() ? ended : status;
}

// The one call that blocks the host.
Status NcclGroup::Meet(Stream& stream) {
  const Call call{.op = CommOp::kAllReduce,
                  .count = 1,
                  .dtype = DType::kI32,
                  .in = handle_->word->data(),
                  .out = handle_->word->data()};
  RETURN_IF_ERROR(DoCall(stream, call, {}));
  stream.Synchronize();
  return status();
}

void NcclGroup::SetEntered(const Call* call) {
  const base::MutexLock lock(&calls_mu_);
  entered_ = call == nullptr ? std::nullopt : std::make_optional(*call);
  entered_number_ = flight_record().last();
  entered_at_ = base::Clock::Real()->Now();
}

void NcclGroup::Follow(Stream& stream, const Call& call) {
  const base::MutexLock lock(&calls_mu_);
  const base::MonotonicTime now = base::Clock::Real()->Now();
  if (in_flight_.size() >= kMostWatched) {
    InFlight& last = in_flight_.back();
    last.call = call;
    last.number = flight_record().last();
    last.enqueued = now;
    last.end->Record(stream);
    return;
  }
  std::unique_ptr<kernels::Event> end;
  if (spare_.empty()) {
    end = device_->CreateEvent();
  } else {
    end = std::move(spare_.back());
    spare_.pop_back();
  }
  end->Record(stream);
  in_flight_.push_back({.call = call,
                        .first = flight_record().last(),
                        .number = flight_record().last(),
                        .enqueued = now,
                        .end = std::move(end)});
}

std::string NcclGroup::InFlight::Describe() const {
  if (first == number) return fmt::format("{} (call {})", call.Describe(), number);
  return fmt::format("{} (call {}) or a call before it, from {} on", call.Describe(), number,
                     first);
}

void NcclGroup::DropEnded(base::MonotonicTime now) {
  while (!in_flight_.empty() && in_flight_.front().end->IsDone()) {
    spare_.push_back(std::move(in_flight_.front().end));
    in_flight_.pop_front();
    last_end_ = now;
  }
}

Status NcclGroup::AskForError() {
  if (!handle_->turn.TryEnter()) return OkStatus();
  NcclResult error = NcclResult::kSuccess;
  // In turn: an abort frees the communicator, and has the status set before.
  if (status().ok()) {
    const NcclResult asked = library_->api.comm_get_async_error(comm_, &error);
    if (error == NcclResult::kSuccess) error = asked;
  }
  handle_->turn.Leave();
  return Check(error);
}

void NcclGroup::Look(base::MonotonicTime now) {
  if (!status().ok()) return;
  const Status error = AskForError();
  std::string oldest = Describe();
  bool is_late = false;
  {
    const base::MutexLock lock(&calls_mu_);
    DropEnded(now);
    if (!in_flight_.empty()) {
      const InFlight& call = in_flight_.front();
      oldest += ": " + call.Describe();
      is_late = now - std::max(call.enqueued, last_end_) > op_timeout();
    } else if (entered_.has_value()) {
      oldest += fmt::format(": {} (call {})", entered_->Describe(), entered_number_);
      is_late = now - entered_at_ > op_timeout();
    }
  }
  if (!error.ok()) {
    static_cast<void>(Fail(base::Annotate(error, oldest)));
  } else if (is_late) {
    static_cast<void>(Fail(
        base::Error(absl::StatusCode::kDeadlineExceeded,
                    "{}: not done within {:.0f} s; another member has not come to this call, or is "
                    "in another",
                    oldest, std::chrono::duration<double>(op_timeout()).count())));
  }
}

// Aborting frees the communicator and lets its kernels return, so that waits for the device end. It
// waits itself, for those kernels, for proxies and peers, and so has a thread.
void NcclGroup::OnBroken() { BeginEnd(/*abort=*/true); }

}  // namespace mt::comm
