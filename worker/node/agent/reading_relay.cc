// A rank's counters are totals since its start: shares are those of the steps between two beats,
// and stay as they were while no step is done. Values of a rank are not trusted.
#include "worker/node/agent/reading_relay.h"

#include <algorithm>
#include <cmath>

#include "common/report/step_phase.h"
#include "megatrain/v1/rank.pb.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::node {

namespace v1 = megatrain::v1;

namespace {

constexpr int kMaxMemoryKinds = 12;  // as RankSeries::kMaxMemoryKinds
constexpr double kLongestStep = 1e9;

// Seconds as a rank reports them; 0 where they make no sense.
double Seconds(double value) {
  return std::isfinite(value) ? std::clamp(value, 0.0, kLongestStep) : 0.0;
}

void FillMemory(const v1::RankTelemetry& telemetry, v1::RankReading* reading) {
  auto& kinds = *reading->mutable_memory_bytes();
  kinds.clear();
  for (const auto& [kind, bytes] : telemetry.memory_bytes()) {
    if (kinds.size() < size_t{kMaxMemoryKinds}) kinds[kind] = std::max<int64_t>(0, bytes);
  }
  reading->set_host_memory_bytes(std::max<int64_t>(0, telemetry.host_memory_bytes()));
}

}  // namespace

ReadingRelay::ReadingRelay(Deps deps) : deps_(std::move(deps)) {}

ReadingRelay::~ReadingRelay() { deps_.loop->Cancel(timer_); }

void ReadingRelay::OnBeat(const JobEpoch& job, int rank, const v1::RankBeat& beat) {
  if (!wanted_ || !beat.has_telemetry()) return;
  Rank& known = jobs_[job][rank];
  if (known.reading == nullptr) {
    known.reading = std::make_unique<v1::RankReading>();
    known.reading->set_rank(rank);
  }
  v1::RankReading& reading = *known.reading;
  const v1::RankTelemetry& telemetry = beat.telemetry();
  reading.set_step(std::max(reading.step(), beat.step()));
  if (!telemetry.recent_step_seconds().empty())
    reading.set_step_seconds(Seconds(*telemetry.recent_step_seconds().rbegin()));
  FillMemory(telemetry, &reading);
  TakePhases(telemetry, &known);
  reading.clear_gpu_utilization();
  if (telemetry.has_gpu_utilization() && std::isfinite(telemetry.gpu_utilization()))
    reading.set_gpu_utilization(std::clamp(telemetry.gpu_utilization(), 0.0, 1.0));
  known.reported = false;
  if (timer_ == EventLoop::kNoTimer) {
    timer_ = deps_.loop->After(deps_.interval, [this] {
      timer_ = EventLoop::kNoTimer;
      Flush();
    });
  }
}

void ReadingRelay::TakePhases(const v1::RankTelemetry& telemetry, Rank* rank) {
  std::map<std::string, double> since;
  double sum = 0;
  for (const std::string_view name : report::kStepPhaseNames) {
    const std::string phase(name);
    const auto total = telemetry.phase_seconds().find(phase);
    if (total == telemetry.phase_seconds().end()) continue;
    double& before = rank->phase_totals[phase];
    const double now = Seconds(total->second);
    since[phase] = std::max(0.0, now - before);
    sum += since[phase];
    before = now;
  }
  if (sum <= 0) return;
  auto& shares = *rank->reading->mutable_phase_shares();
  shares.clear();
  for (const auto& [phase, seconds] : since) shares[phase] = seconds / sum;
}

void ReadingRelay::Forget(const JobEpoch& job) { jobs_.erase(job); }

void ReadingRelay::Flush() {
  if (!wanted_) return;
  for (auto& [job, ranks] : jobs_) {
    v1::WorkerMessage message;
    v1::RankReadings& readings = *message.mutable_rank_readings();
    readings.set_job_uid(job.first);
    readings.set_epoch(job.second);
    for (auto& [index, rank] : ranks) {
      if (std::exchange(rank.reported, true)) continue;
      *readings.add_ranks() = *rank.reading;
    }
    if (readings.ranks_size() > 0) deps_.send_now(message);
  }
}

}  // namespace mt::node
