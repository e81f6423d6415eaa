// What all implementations share: argument checks, the sticky failure status and the counters.
#include "worker/comm/process_group.h"

#include <algorithm>
#include <utility>

#include "common/base/log.h"
#include "worker/failure/failure.h"

namespace mt::comm {
namespace {

using kernels::DType;
using kernels::Stream;

double Seconds(base::MonotonicTime begin, base::MonotonicTime end) {
  return std::chrono::duration<double>(end - begin).count();
}

bool CarriesWords(CommOp op) {
  return op == CommOp::kAllReduce || op == CommOp::kAllGather || op == CommOp::kBroadcast ||
         op == CommOp::kBarrier;
}

bool HasPeer(CommOp op) {
  return op == CommOp::kBroadcast || op == CommOp::kSend || op == CommOp::kRecv;
}

}  // namespace

ProcessGroup::ProcessGroup(GroupSpec spec, CommConfig config)
    : spec_(std::move(spec)),
      config_(std::move(config)),
      op_timeout_ms_(config_.op_timeout.count()) {
  CHECK(spec_.my_index >= 0 && spec_.my_index < size())
      << "group " << spec_.name << ": index " << spec_.my_index << " of " << size();
}

Status ProcessGroup::AllReduce(Stream& stream, const void* in, void* out, int64_t count,
                               DType dtype, ReduceOp op) {
  return Run(stream, {.op = CommOp::kAllReduce,
                      .count = count,
                      .dtype = dtype,
                      .reduce = op,
                      .in = in,
                      .out = out});
}

Status ProcessGroup::ReduceScatter(Stream& stream, const void* in, void* out, int64_t shard_count,
                                   DType dtype, ReduceOp op) {
  const int64_t bytes = size() * shard_count * kernels::SizeOf(dtype);
  CHECK(out != nullptr || bytes == 0 ||
        (op == ReduceOp::kSum && terms() != nullptr && terms()->Fit(bytes)))
      << Describe() << ": a sum of " << bytes << " bytes to nowhere";
  return Run(stream, {.op = CommOp::kReduceScatter,
                      .count = shard_count,
                      .dtype = dtype,
                      .reduce = op,
                      .in = in,
                      .out = out});
}

Status ProcessGroup::AllGather(Stream& stream, const void* in, void* out, int64_t shard_count,
                               DType dtype) {
  return Run(
      stream,
      {.op = CommOp::kAllGather, .count = shard_count, .dtype = dtype, .in = in, .out = out});
}

Status ProcessGroup::Broadcast(Stream& stream, void* data, int64_t count, DType dtype, int root) {
  return Run(stream, {.op = CommOp::kBroadcast,
                      .count = count,
                      .dtype = dtype,
                      .peer = root,
                      .in = data,
                      .out = data});
}

Status ProcessGroup::AllToAll(Stream& stream, const void* in, void* out, int64_t shard_count,
                              DType dtype) {
  return Run(stream,
             {.op = CommOp::kAllToAll, .count = shard_count, .dtype = dtype, .in = in, .out = out});
}

Status ProcessGroup::Send(Stream& stream, const void* data, int64_t count, DType dtype, int peer,
                          int edge) {
  return Run(stream, {.op = CommOp::kSend,
                      .count = count,
                      .dtype = dtype,
                      .peer = peer,
                      .edge = edge,
                      .in = data});
}

Status ProcessGroup::Recv(Stream& stream, void* data, int64_t count, DType dtype, int peer,
                          int edge) {
  return Run(stream, {.op = CommOp::kRecv,
                      .count = count,
                      .dtype = dtype,
                      .peer = peer,
                      .edge = edge,
                      .out = data});
}

Status ProcessGroup::Barrier(Stream& stream) { return Run(stream, {.op = CommOp::kBarrier}); }

Status ProcessGroup::Validate(const Call& call) const {
  if (call.count < 0) {
    return base::InvalidArgument("{}: {}: negative count", Describe(), call.Describe());
  }
  if (spec_.words && !CarriesWords(call.op)) {
    return base::InvalidArgument("{}: {}: a group of words has no such call", Describe(),
                                 call.Describe());
  }
  const bool is_message = call.op == CommOp::kSend || call.op == CommOp::kRecv;
  if (HasPeer(call.op) && (call.peer < 0 || call.peer >= size())) {
    return base::InvalidArgument("{}: {}: no such rank", Describe(), call.Describe());
  }
  if (is_message && call.peer == rank()) {
    return base::InvalidArgument("{}: {}: that is this rank", Describe(), call.Describe());
  }
  if (is_message && (call.edge < 0 || call.edge >= kMaxEdges)) {
    return base::InvalidArgument("{}: {}: edges are 0 to {}", Describe(), call.Describe(),
                                 kMaxEdges - 1);
  }
  return OkStatus();
}

Status ProcessGroup::Run(Stream& stream, const Call& call) {
  RETURN_IF_ERROR(Validate(call));
  const base::MonotonicTime start = base::Clock::Real()->Now();
  {
    const base::MutexLock lock(&mu_);
    if (!status_.ok()) return status_;
    CHECK(!running_) << Describe() << ": " << call.Describe() << " while another call runs";
    running_ = true;
    call_start_ = start;
  }
  listener_.TellCall(flight_record_.Add(call), call);
  Status result;
  auto cause = failure::Cause::kNone;  // of what was thrown
  try {
    result = DoCall(stream, call, start + op_timeout());
  } catch (...) {
    result = failure::StatusOfException();
    cause = failure::CauseOf(result);
  }
  {
    const base::MutexLock lock(&mu_);
    running_ = false;
    OpStats& stats = stats_.ops[static_cast<size_t>(call.op)];
    ++stats.num_calls;
    stats.payload_bytes += call.Bytes() * (call.HasShards() ? size() : 1);
    stats.seconds += Seconds(start, base::Clock::Real()->Now());
  }
  if (result.ok()) return result;
  const Status why = base::Annotate(result, fmt::format("{}: {}", Describe(), call.Describe()));
  return Fail(cause == failure::Cause::kNone ? why : failure::WithCause(why, cause));
}

Status ProcessGroup::Fail(const Status& why) {
  {
    const base::MutexLock lock(&mu_);
    if (!status_.ok()) return status_;
    status_ = why;
  }
  OnBroken();
  listener_.TellBroken();
  // Whose members may be in different calls.
  if (absl::IsDeadlineExceeded(why) || absl::IsFailedPrecondition(why)) {
    log::Warn("the latest calls of a group that broke",
              {{"group", name()}, {"calls", flight_record_.Describe()}});
  }
  return why;
}

void ProcessGroup::Abort(std::string_view reason) {
  // The status is the group's own; the caller gave the reason.
  static_cast<void>(
      Fail(base::Error(absl::StatusCode::kAborted, "{}: aborted: {}", Describe(), reason)));
}

Status ProcessGroup::status() const {
  const base::MutexLock lock(&mu_);
  return status_;
}

CommStats ProcessGroup::Stats() const {
  const base::MutexLock lock(&mu_);
  CommStats stats = stats_;
  if (running_) stats.inflight_seconds = Seconds(call_start_, base::Clock::Real()->Now());
  return stats;
}

std::string ProcessGroup::Describe() const {
  return fmt::format("group {}, rank {} (world {}) of {}", name(), rank(), WorldRank(rank()),
                     size());
}

std::string ProcessGroup::DescribePeer(int index) const {
  return fmt::format("rank {} (world {})", index, WorldRank(index));
}

}  // namespace mt::comm
