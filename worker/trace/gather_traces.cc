// One broadcast per rank, so that no rank but the first holds more than one trace beside its own.
#include "worker/trace/gather_traces.h"

#include <algorithm>
#include <string>

#include "common/base/check.h"
#include "megatrain/v1/trace.pb.h"
#include "worker/checkpoint/exchange.h"

namespace mt::trace {
namespace {

namespace v1 = megatrain::v1;

constexpr int kBarriers = 7;

StatusOr<std::vector<int64_t>> TimesOfBarriers(comm::ProcessGroup* world, kernels::Stream* stream,
                                               const base::Clock* clock) {
  std::vector<int64_t> times;
  for (int i = 0; i < kBarriers; ++i) {
    RETURN_IF_ERROR(world->Barrier(*stream));
    times.push_back(std::chrono::nanoseconds(clock->Now().time_since_epoch()).count());
  }
  return times;
}

// The times in front of the trace, 8 bytes each.
std::string Packed(const std::vector<int64_t>& times, const v1::RankTrace& trace) {
  std::string text(reinterpret_cast<const char*>(times.data()), times.size() * sizeof(int64_t));
  return text + trace.SerializeAsString();
}

Status Unpack(const std::string& text, int rank, std::vector<int64_t>* times,
              v1::RankTrace* trace) {
  constexpr size_t kBytes = kBarriers * sizeof(int64_t);
  times->resize(kBarriers);
  if (text.size() < kBytes || !trace->ParseFromString(text.substr(kBytes)))
    return base::Internal("the trace of rank {} cannot be read: {} bytes", rank, text.size());
  std::copy_n(text.data(), kBytes, reinterpret_cast<char*>(times->data()));
  return OkStatus();
}

}  // namespace

int64_t ClockOffset(const std::vector<int64_t>& mine, const std::vector<int64_t>& other) {
  CHECK(!mine.empty() && mine.size() == other.size());
  std::vector<int64_t> offsets;
  for (size_t i = 0; i < mine.size(); ++i) offsets.push_back(other[i] - mine[i]);
  std::ranges::sort(offsets);
  return offsets[offsets.size() / 2];
}

Status GatherTraces(comm::ProcessGroup* world, kernels::Stream* stream, const base::Clock* clock,
                    const v1::RankTrace& mine, v1::JobTrace* out) {
  checkpoint::Exchange exchange(world, stream);
  const bool first = exchange.rank() == 0;
  if (first) *out->add_ranks() = mine;
  if (exchange.size() == 1) return OkStatus();
  ASSIGN_OR_RETURN(const std::vector<int64_t> own, TimesOfBarriers(world, stream, clock));
  for (int rank = 1; rank < exchange.size(); ++rank) {
    const std::string text = rank == exchange.rank() ? Packed(own, mine) : std::string();
    ASSIGN_OR_RETURN(const std::string whole, exchange.Broadcast(text, rank));
    if (!first) continue;
    std::vector<int64_t> times;
    v1::RankTrace trace;
    RETURN_IF_ERROR(Unpack(whole, rank, &times, &trace));
    if (trace.boot_id().empty() || trace.boot_id() != mine.boot_id())
      trace.set_base_ns(trace.base_ns() - ClockOffset(own, times));
    *out->add_ranks() = std::move(trace);
  }
  return OkStatus();
}

}  // namespace mt::trace
