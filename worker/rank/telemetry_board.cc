// Step times are passed through a ring with one writer and one reader; the reader skips what was
// overwritten.
#include "worker/rank/telemetry_board.h"

#include <algorithm>
#include <string>

#include "megatrain/v1/rank.pb.h"
#include "worker/train/step_report.h"

namespace mt::rank {
namespace {

// Labels (`group`) of the axes in metrics, in the order of TelemetryBoard::ops_.
constexpr const char* kAxisNames[] = {"tp", "pp", "dp", "world"};

}  // namespace

void TelemetryBoard::Post(const train::RankCounters& counters) {
  tokens_ = counters.tokens;
  for (size_t i = 0; i < phase_seconds_.size(); ++i) phase_seconds_[i] = counters.phase_seconds[i];
  for (size_t i = 0; i < memory_bytes_.size(); ++i) memory_bytes_[i] = counters.memory_bytes[i];
  const parallel::GroupStats& comm = counters.comm;
  const std::array<const comm::CommStats*, kNumAxes> axes = {&comm.tp, &comm.pp, &comm.dp,
                                                             &comm.world};
  for (size_t axis = 0; axis < kNumAxes; ++axis) {
    for (size_t i = 0; i < ops_[axis].size(); ++i) {
      const comm::OpStats& op = axes[axis]->ops[i];
      ops_[axis][i].calls = op.num_calls;
      ops_[axis][i].bytes = op.payload_bytes;
      ops_[axis][i].seconds = op.seconds;
    }
  }
  // A single writer: the slot is written before the count includes it.
  const uint64_t n = num_steps_;
  recent_[n % kRecentSteps] = counters.step_seconds;
  num_steps_ = n + 1;
}

void TelemetryBoard::Fill(megatrain::v1::RankTelemetry* out) {
  out->set_tokens(tokens_);
  out->set_comm_init_seconds(comm_init_seconds_);
  for (size_t i = 0; i < phase_seconds_.size(); ++i) {
    const std::string name(report::Name(static_cast<report::StepPhase>(i)));
    (*out->mutable_phase_seconds())[name] = phase_seconds_[i];
  }
  for (size_t i = 0; i < memory_bytes_.size(); ++i) {
    const std::string name(memory::Name(static_cast<memory::Kind>(i)));
    (*out->mutable_memory_bytes())[name] = memory_bytes_[i];
  }
  out->set_host_memory_bytes(train::ReadResidentMemory().own_bytes);
  for (size_t axis = 0; axis < kNumAxes; ++axis) {
    for (size_t i = 0; i < ops_[axis].size(); ++i) {
      const AtomicOp& from = ops_[axis][i];
      if (from.calls == 0) continue;
      auto& op = *out->add_collectives();
      op.set_op(std::string(comm::Name(static_cast<comm::CommOp>(i))));
      op.set_group(kAxisNames[axis]);
      op.set_calls(from.calls);
      op.set_bytes(from.bytes);
      op.set_seconds(from.seconds);
    }
  }
  const uint64_t n = num_steps_;
  for (uint64_t i = std::max(taken_, n - std::min<uint64_t>(n, kRecentSteps)); i < n; ++i) {
    out->add_recent_step_seconds(recent_[i % kRecentSteps]);
  }
  taken_ = n;
}

}  // namespace mt::rank
