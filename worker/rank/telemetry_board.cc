#include "worker/rank/telemetry_board.h"

#include <algorithm>
#include <string>

#include "megatrain/v1/rank.pb.h"
#include "worker/train/step_report.h"

namespace mt::rank {
namespace {

// The only group so far: the replicas.
constexpr char kGroup[] = "dp";

}  // namespace

void TelemetryBoard::Post(const train::RankCounters& counters) {
  tokens_ = counters.tokens;
  for (size_t i = 0; i < phase_seconds_.size(); ++i) phase_seconds_[i] = counters.phase_seconds[i];
  for (size_t i = 0; i < memory_bytes_.size(); ++i) memory_bytes_[i] = counters.memory_bytes[i];
  for (size_t i = 0; i < ops_.size(); ++i) {
    const comm::OpStats& op = counters.dp_comm.ops[i];
    ops_[i].calls = op.num_calls;
    ops_[i].bytes = op.payload_bytes;
    ops_[i].seconds = op.seconds;
  }
  // One writer: the slot is written before the count says so.
  const uint64_t n = num_steps_;
  recent_[n % kRecentSteps] = counters.step_seconds;
  num_steps_ = n + 1;
}

void TelemetryBoard::Fill(megatrain::v1::RankTelemetry* out) {
  out->set_tokens(tokens_);
  out->set_comm_init_seconds(comm_init_seconds_);
  for (size_t i = 0; i < phase_seconds_.size(); ++i) {
    const std::string name(train::Name(static_cast<train::StepPhase>(i)));
    (*out->mutable_phase_seconds())[name] = phase_seconds_[i];
  }
  for (size_t i = 0; i < memory_bytes_.size(); ++i) {
    const std::string name(memory::Name(static_cast<memory::Kind>(i)));
    (*out->mutable_memory_bytes())[name] = memory_bytes_[i];
  }
  out->set_host_memory_bytes(train::ResidentBytes());
  for (size_t i = 0; i < ops_.size(); ++i) {
    if (ops_[i].calls == 0) continue;
    auto& op = *out->add_collectives();
    op.set_op(std::string(comm::Name(static_cast<comm::CommOp>(i))));
    op.set_group(kGroup);
    op.set_calls(ops_[i].calls);
    op.set_bytes(ops_[i].bytes);
    op.set_seconds(ops_[i].seconds);
  }
  const uint64_t n = num_steps_;
  for (uint64_t i = std::max(taken_, n - std::min<uint64_t>(n, kRecentSteps)); i < n; ++i) {
    out->add_recent_step_seconds(recent_[i % kRecentSteps]);
  }
  taken_ = n;
}

}  // namespace mt::rank
