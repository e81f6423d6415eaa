// The race runs on one stream, each group's calls one after another, so that nothing runs beside.
#include "worker/parallel/tensor_routes.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/log.h"

namespace mt::parallel {
namespace {

using comm::CommOp;
using kernels::SpanClock;

// Calls before the clock begins, whose first ones wait for the slowest rank, and under the clock.
constexpr int kWarmUps = 3, kRuns = 8;

bool HasShards(CommOp op) { return op != CommOp::kAllReduce; }

}  // namespace

comm::ProcessGroup* TensorRoutes::Of(CommOp op, int64_t bytes) const {
  if (copies_ == nullptr) return group_;
  const Choice* best = nullptr;
  for (const Choice& choice : choices_) {
    if (choice.call.op != op) continue;
    const bool closer = best == nullptr ||
                        (best->bytes < bytes ? choice.bytes > best->bytes
                                             : choice.bytes >= bytes && choice.bytes < best->bytes);
    if (closer) best = &choice;
  }
  return best == nullptr || best->copies ? copies_ : group_;
}

void TensorRoutes::Plan(memory::MemoryPlan* plan, int64_t largest_bytes) {
  if (!has_copies()) return;
  scratch_ = plan->Reserve(memory::Kind::kComm, copies_->ScratchBytes(largest_bytes));
}

Status TensorRoutes::Share(const memory::Memory& memory) {
  using Piece = comm::ProcessGroup::SharedMemory::Piece;
  if (!has_copies()) return OkStatus();
  std::vector<Piece> operands;
  for (const memory::Kind kind : {memory::Kind::kActivations, memory::Kind::kWorkspace}) {
    const memory::Block whole = memory.Whole(kind);
    if (whole.bytes > 0) operands.push_back({.data = memory.Data(whole), .bytes = whole.bytes});
  }
  Status shared = copies_->Share(
      {.operands = operands, .scratch = {.data = memory.Data(scratch_), .bytes = scratch_.bytes}});
  if (!absl::IsUnavailable(shared) || !copies_->status().ok()) return shared;
  log::Warn("tensor ranks of one host communicate by NCCL instead of copies, which is slower",
            {{"group", group_->name()}, {"why", base::Message(shared)}});
  LeaveCopies();
  return OkStatus();
}

std::vector<TensorRoutes::Choice> TensorRoutes::Racing(const std::vector<Call>& calls,
                                                       int64_t bytes) const {
  std::vector<Choice> racing;
  for (const Call& call : calls) {
    Choice choice{
        .call = call,
        .bytes = call.count * kernels::SizeOf(call.dtype) * (HasShards(call.op) ? size() : 1),
        .copies = true};
    const bool sums = call.op != CommOp::kAllGather;
    if (choice.bytes > bytes || choice.bytes == 0 || (sums && size() > 2)) continue;
    racing.push_back(choice);
  }
  return racing;
}

Status TensorRoutes::Run(comm::ProcessGroup* group, kernels::Stream& stream, const Call& call,
                         std::byte* data) const {
  std::byte* const own = data + group->rank() * call.count * kernels::SizeOf(call.dtype);
  switch (call.op) {
    case CommOp::kAllGather:
      return group->AllGather(stream, own, data, call.count, call.dtype);
    case CommOp::kReduceScatter:
      return group->ReduceScatter(
          stream, data,
          LeavesTerms(group, size() * call.count * kernels::SizeOf(call.dtype)) ? nullptr : own,
          call.count, call.dtype, comm::ReduceOp::kSum);
    case CommOp::kAllReduce:
      return group->AllReduce(stream, data, data, call.count, call.dtype, comm::ReduceOp::kSum);
    default:
      return base::Internal("layers have no {}", Name(call.op));
  }
}

Status TensorRoutes::Race(kernels::Device* device, const std::vector<Call>& calls,
                          const memory::Memory& memory) {
  if (!has_copies()) return OkStatus();
  const memory::Block whole = memory.Whole(memory::Kind::kActivations);
  std::vector<Choice> racing = Racing(calls, whole.bytes);
  const auto clock =
      device->CreateSpanClock(2 * static_cast<int64_t>(racing.size()) + 1, base::Clock::Real());
  const auto bytes = static_cast<int64_t>(2 * racing.size() * sizeof(double));
  if (racing.empty() || clock == nullptr || bytes > whole.bytes) return OkStatus();
  auto* const data = static_cast<std::byte*>(memory.Data(whole));
  const auto stream = device->CreateStream(kernels::StreamPriority::kHigh);
  for (const Choice& choice : racing) {
    for (comm::ProcessGroup* const group : {group_, copies_}) {
      std::optional<SpanClock::Ticket> ticket;
      for (int i = 0; i < kWarmUps + kRuns; ++i) {
        if (i == kWarmUps) ticket = clock->Begin(*stream, 0);
        RETURN_IF_ERROR(Run(group, *stream, choice.call, data));
      }
      if (ticket) clock->End(*stream, *ticket);
    }
  }
  stream->Synchronize();
  RETURN_IF_ERROR(group_->status());
  RETURN_IF_ERROR(copies_->status());
  std::vector<double> seconds;
  for (const SpanClock::Span& span : clock->Read()) seconds.push_back(span.end - span.begin);
  seconds.resize(2 * racing.size());
  // The same on all ranks, to the bit.
  device->Copy(*stream, data, seconds.data(), bytes);
  RETURN_IF_ERROR(group_->AllReduce(*stream, data, data, static_cast<int64_t>(seconds.size()),
                                    kernels::DType::kF64, comm::ReduceOp::kSum));
  device->Copy(*stream, seconds.data(), data, bytes);
  device->Zero(*stream, data, bytes);
  stream->Synchronize();
  RETURN_IF_ERROR(group_->status());
  for (size_t i = 0; i < racing.size(); ++i) {
    Choice& choice = racing[i];
    choice.group_us = seconds[2 * i] * 1e6 / kRuns / size();
    choice.copies_us = seconds[2 * i + 1] * 1e6 / kRuns / size();
    choice.copies = choice.copies_us <= choice.group_us * kMargin;
    if (group_->rank() == 0)
      log::Info("a collective inside layers",
                {{"group", group_->name()}, {"goes", Describe(choice)}});
  }
  choices_ = std::move(racing);
  return OkStatus();
}

std::string TensorRoutes::ToText() const {
  std::string text;
  for (const Choice& choice : choices_) text += Describe(choice) + "\n";
  return text;
}

std::string TensorRoutes::Describe(const Choice& choice) {
  const double us[2] = {choice.group_us, choice.copies_us};
  const char* const names[2] = {"nccl", "copies"};
  const int by = choice.copies ? 1 : 0;
  return fmt::format("{} of {} bytes: {} ({:.1f} us, {} {:.1f} us)", Name(choice.call.op),
                     choice.bytes, names[by], us[by], names[1 - by], us[1 - by]);
}

}  // namespace mt::parallel
