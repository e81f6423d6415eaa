// Every exchange has a number. A member first tells its peers that it has entered it: they may
// write its memory. Then it goes round: to the next member, the one after that, and so on, each
// time when that one has entered; thus no two write into one member at a time while all go along.
// Last it waits until all have written what they had for it.
//
// A sum's terms arrive in scratch memory, a slot for each peer, and large shards go piece by piece.
// The next piece is entered behind the sum that reads the slots.
#include "worker/comm/copies/copy_group.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/log.h"
#include "common/base/math.h"
#include "worker/comm/reduce.h"

namespace mt::comm {
namespace {

using kernels::DType;
using kernels::Stream;

// The most of a shard that goes at once: it bounds the scratch, and a copy of it takes long enough
// for the few microseconds of a hand-over.
constexpr int64_t kPieceBytes = int64_t{64} << 20;

// So often a deadline the peers' exchanges are looked at, to see whether they go on.
constexpr int kLooks = 8;

bool IsFloat(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64 || IsHalf(dtype); }

}  // namespace

CopyGroup::CopyGroup(GroupSpec spec, CommConfig config, Args args)
    : ProcessGroup(std::move(spec), std::move(config)),
      args_(std::move(args)),
      host_stream_(args_.device->CreateStream(kernels::StreamPriority::kLow)),
      slots_(rank(), size()) {
  CHECK_LE(size(), kMostMembers);
  args_.watch->Add(this);
}

// Lets go of the peers' memory while it is watched: that may wait for the device, and a store of a
// peer that has died may still take back the end of a wait there.
CopyGroup::~CopyGroup() {
  listener().Drop();
  windows_.Clear();
  args_.watch->Remove(this);
}

// Memory.

int64_t CopyGroup::ScratchBytes(int64_t bytes) const {
  const int64_t shard = base::CeilDiv(bytes, int64_t{size()});
  return (size() - 1) * base::RoundUp(std::min(shard, kPieceBytes), TermSlots::kAlign);
}

Status CopyGroup::Share(const SharedMemory& memory) {
  RETURN_IF_ERROR(status());
  const StatusOr<std::string> why_not =
      windows_.Map(*args_.host, *host_stream_, *args_.device, memory);
  if (!why_not.ok()) return Fail(why_not.status());
  if (!why_not->empty()) return base::Unavailable("{}: {}", Describe(), *why_not);
  slots_.Set(windows_.scratch().own, windows_.scratch().bytes);
  return OkStatus();
}

void CopyGroup::LetGo() {
  if (!args_.words->Leave()) return;
  windows_.Clear();
  slots_.Set(nullptr, 0);
  // Until nobody uses this member's memory. An error says that a peer is gone, and what it mapped
  // with it.
  static_cast<void>(args_.host->Barrier(*host_stream_));
}

// Calls.

Status CopyGroup::DoCall(Stream& stream, const Call& call, base::MonotonicTime /*deadline*/) {
  RETURN_IF_ERROR(args_.host->status());
  const Status enqueued = Enqueue(stream, call);
  args_.words->EndCall(stream, number_);
  RETURN_IF_ERROR(enqueued);
  {
    const base::MutexLock lock(&calls_mu_);
    latest_ = call;
    latest_number_ = number_;
    enqueued_ = base::Clock::Real()->Now();
  }
  if (call.op != CommOp::kBarrier) return OkStatus();
  stream.Synchronize();
  return status();
}

Status CopyGroup::Enqueue(Stream& stream, const Call& call) {
  const bool reduces = call.op == CommOp::kAllReduce || call.op == CommOp::kReduceScatter;
  if (reduces && (call.reduce != ReduceOp::kSum || !IsFloat(call.dtype))) {
    return base::Error(absl::StatusCode::kUnimplemented,
                       "groups over copies form sums of floats alone");
  }
  switch (call.op) {
    case CommOp::kAllReduce:
      return AllReduceParts(stream, call);
    case CommOp::kReduceScatter:
      return ReduceScatterParts(stream, call);
    case CommOp::kAllGather:
      return AllGatherParts(stream, call);
    case CommOp::kBroadcast:
      return BroadcastWhole(stream, call);
    case CommOp::kBarrier:
      AwaitAll(stream, PeerWords::kEntered, Enter(stream));
      return OkStatus();
    default:
      return base::Error(absl::StatusCode::kUnimplemented, "groups over copies have no {}",
                         Name(call.op));
  }
}

uint32_t CopyGroup::Enter(Stream& stream) {
  ++number_;
  for (int d = 1; d < size(); ++d) args_.words->Tell(stream, Next(d), PeerWords::kEntered, number_);
  return number_;
}

void CopyGroup::AwaitAll(Stream& stream, PeerWords::Kind kind, uint32_t number) {
  for (int d = 1; d < size(); ++d) args_.words->Await(stream, Next(d), kind, number);
}

Status CopyGroup::AllReduceParts(Stream& stream, const Call& call) {
  const ShardCut cut{.count = call.count, .num_shards = size()};
  const int64_t each = kernels::SizeOf(call.dtype);
  ASSIGN_OR_RETURN(const Part in, windows_.Locate(call.in, call.Bytes()));
  ASSIGN_OR_RETURN(const Part out, windows_.Locate(call.out, call.Bytes()));
  std::vector<Part> terms;
  std::vector<Part> sums;
  for (int member = 0; member < size(); ++member) {
    const int64_t offset = cut.Begin(member) * each;
    const int64_t bytes = cut.CountOf(member) * each;
    terms.push_back({.window = in.window, .offset = in.offset + offset, .bytes = bytes});
    sums.push_back({.window = out.window, .offset = out.offset + offset, .bytes = bytes});
  }
  RETURN_IF_ERROR(Reduce(stream, call, terms, sums[static_cast<size_t>(rank())].Own()));
  Gather(stream, sums);
  return OkStatus();
}

Status CopyGroup::ReduceScatterParts(Stream& stream, const Call& call) {
  ASSIGN_OR_RETURN(const Part in, windows_.Locate(call.in, size() * call.Bytes()));
  std::vector<Part> terms;
  terms.reserve(static_cast<size_t>(size()));
  for (int member = 0; member < size(); ++member) {
    terms.push_back(
        {.window = in.window, .offset = in.offset + member * call.Bytes(), .bytes = call.Bytes()});
  }
  if (call.out != nullptr) return Reduce(stream, call, terms, call.out);
  SendTerms(stream, terms);  // they stay where they arrive
  return OkStatus();
}

Status CopyGroup::AllGatherParts(Stream& stream, const Call& call) {
  ASSIGN_OR_RETURN(const Part out, windows_.Locate(call.out, size() * call.Bytes()));
  std::vector<Part> shards;
  shards.reserve(static_cast<size_t>(size()));
  for (int member = 0; member < size(); ++member) {
    shards.push_back({.window = out.window,
                      .offset = out.offset + member * call.Bytes(),
                      .bytes = call.Bytes()});
  }
  std::byte* const own = shards[static_cast<size_t>(rank())].Own();
  if (call.in != own) args_.device->Copy(stream, own, call.in, call.Bytes());
  Gather(stream, shards);
  return OkStatus();
}

Status CopyGroup::BroadcastWhole(Stream& stream, const Call& call) {
  ASSIGN_OR_RETURN(const Part whole, windows_.Locate(call.out, call.Bytes()));
  std::vector<Part> shards(static_cast<size_t>(size()), Part{.window = whole.window});
  shards[static_cast<size_t>(call.peer)] = whole;
  Gather(stream, shards);
  return OkStatus();
}

void CopyGroup::Gather(Stream& stream, std::span<const Part> shards) {
  const uint32_t number = Enter(stream);
  const Part& own = shards[static_cast<size_t>(rank())];
  for (int d = 1; d < size(); ++d) {
    const int peer = Next(d);
    args_.words->Await(stream, peer, PeerWords::kEntered, number);
    if (own.bytes > 0) args_.device->Copy(stream, own.At(peer), own.Own(), own.bytes);
    args_.words->Tell(stream, peer, PeerWords::kArrived, number);
  }
  AwaitAll(stream, PeerWords::kArrived, number);
}

Status CopyGroup::Reduce(Stream& stream, const Call& call, std::span<const Part> shards,
                         void* out) {
  int64_t largest = 0;
  for (const Part& shard : shards) largest = std::max(largest, shard.bytes);
  if (largest > 0 && slots_.bytes() == 0) {
    return base::FailedPrecondition("a sum without scratch memory (Share)");
  }
  for (int64_t at = 0; at < largest; at += slots_.bytes()) {
    std::vector<Part> pieces(shards.begin(), shards.end());
    for (Part& piece : pieces) {
      const int64_t skipped = std::min(at, piece.bytes);
      piece.offset += skipped;
      piece.bytes = std::min(piece.bytes - skipped, slots_.bytes());
    }
    ReducePiece(stream, call, pieces, static_cast<std::byte*>(out) + at);
  }
  return OkStatus();
}

void CopyGroup::ReducePiece(Stream& stream, const Call& call, std::span<const Part> pieces,
                            void* out) {
  SendTerms(stream, pieces);
  SumArrived(stream, call, pieces[static_cast<size_t>(rank())], out);
}

void CopyGroup::SendTerms(Stream& stream, std::span<const Part> pieces) {
  const uint32_t number = Enter(stream);
  for (int d = 1; d < size(); ++d) {
    const int peer = Next(d);
    const Part& piece = pieces[static_cast<size_t>(peer)];
    const Part slot{.window = &windows_.scratch(), .offset = slots_.OffsetAt(d)};
    args_.words->Await(stream, peer, PeerWords::kEntered, number);
    if (piece.bytes > 0) args_.device->Copy(stream, slot.At(peer), piece.Own(), piece.bytes);
    args_.words->Tell(stream, peer, PeerWords::kArrived, number);
  }
  AwaitAll(stream, PeerWords::kArrived, number);
}

void CopyGroup::SumArrived(Stream& stream, const Call& call, const Part& own, void* out) {
  const int64_t count = own.bytes / kernels::SizeOf(call.dtype);
  if (count == 0) return;
  kernels::Partials terms;
  for (std::byte* const at : slots_.Arrived(own.Own(), call.dtype))
    terms.tensor[static_cast<size_t>(terms.count++)] = {at, call.dtype, {count}};
  args_.vector->SumPartials(stream, {out, call.dtype, {count}}, terms);
}

// The end of waits.

void CopyGroup::OnBroken() {
  args_.host->Abort("its group over copies is broken");
  try {
    args_.words->Break();
  } catch (const kernels::DeviceError& error) {
    // Nothing waits on a device that has failed, and this thread may be anybody's.
    log::Warn("a group's waits are left to the device", {{"group", name()}, {"why", error.what()}});
  }
}

// The host enqueues calls of several steps: the newest may be due long after the deadline, and the
// group be well.
void CopyGroup::Look(base::MonotonicTime now) {
  if (!status().ok()) return args_.words->BreakAgain();
  Call late;
  uint32_t number = 0;
  bool is_late = false;
  {
    const base::MutexLock lock(&calls_mu_);
    if (!latest_.has_value()) return;
    is_late = now - std::max(enqueued_, moved_at_) > op_timeout();
    if (!is_late && now - looked_at_ < op_timeout() / kLooks) return;
    if (args_.words->IsDone()) {
      latest_.reset();
      return;
    }
    looked_at_ = now;
    late = *latest_;
    number = latest_number_;
  }
  std::vector<uint32_t> entered = args_.words->Entered();
  {
    const base::MutexLock lock(&calls_mu_);
    const bool has_moved = !seen_.empty() && seen_ != entered;
    seen_ = entered;
    if (has_moved) moved_at_ = now;
    if (has_moved || !is_late) return;
  }
  BreakLate(late, number, std::move(entered));
}

// Names whoever is behind all others, since those wait for it.
void CopyGroup::BreakLate(const Call& late, uint32_t number, std::vector<uint32_t> entered) {
  entered[static_cast<size_t>(rank())] = number;
  const auto behind = [number](uint32_t at) { return number - at; };
  const uint32_t most = behind(*std::ranges::max_element(entered, {}, behind));
  std::string missing;
  for (int peer = 0; peer < size(); ++peer) {
    const uint32_t theirs = entered[static_cast<size_t>(peer)];
    if (peer == rank() || behind(theirs) != most) continue;
    missing += fmt::format("; {} is in exchange {}", DescribePeer(peer), theirs);
  }
  static_cast<void>(Fail(
      base::Error(absl::StatusCode::kDeadlineExceeded,
                  "{}: {} (exchange {}) not done within {:.0f} s{}", Describe(), late.Describe(),
                  number, std::chrono::duration<double>(op_timeout()).count(), missing)));
}

}  // namespace mt::comm
