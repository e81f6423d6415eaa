// Children of the families are created on first use and removed with the rank.
#include "worker/node/agent/rank_series.h"

#include <cmath>
#include <string>
#include <string_view>

#include "common/report/step_phase.h"
#include "megatrain/v1/rank.pb.h"

namespace mt::node {

using megatrain::v1::RankTelemetry;
using metrics::Labels;

namespace {

constexpr const char* kOther = "other";  // label of operations and memory kinds beyond the bound
static_assert(report::Name(report::StepPhase::kOther) == kOther);

// Values of a rank are not trusted: a total that is negative or not a number counts as 0.
double Total(double value) { return std::isfinite(value) && value > 0 ? value : 0; }
double Total(int64_t value) { return value > 0 ? static_cast<double>(value) : 0; }

}  // namespace

RankFamilies::RankFamilies(metrics::Registry* registry)
    : info(registry->AddGauge("mt_rank_info", "Where a rank runs and its place in the mesh; 1.")),
      step(registry->AddGauge("mt_step", "Last step that the rank has done.")),
      tokens(registry->AddCounter("mt_tokens_total", "Tokens of the rank's microbatches.")),
      step_duration(registry->AddHistogram("mt_step_duration_seconds", "Duration of steps.",
                                           {0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120})),
      phase_seconds(registry->AddCounter("mt_step_phase_seconds_total",
                                         "Time of steps by what the rank did in it.")),
      collective_seconds(registry->AddCounter("mt_collective_seconds_total",
                                              "Time in collectives by operation and group.")),
      collective_calls(
          registry->AddCounter("mt_collective_calls_total", "Collectives by operation and group.")),
      collective_bytes(registry->AddCounter("mt_collective_bytes_total",
                                            "Payload of collectives by operation and group.")),
      comm_init_seconds(registry->AddGauge("mt_comm_init_seconds",
                                           "How long the communicators took to come up.")),
      memory_bytes(registry->AddGauge("mt_rank_memory_bytes",
                                      "Memory of the rank's arenas on its device, by kind.")),
      host_memory_bytes(registry->AddGauge(
          "mt_host_memory_bytes", "Resident memory of the rank's process, without mapped files.")) {
}

RankSeries::RankSeries(const RankFamilies* families, const Labels& labels, const Labels& info)
    : families_(families),
      group_(labels),
      step_(group_.Add(families->step)),
      tokens_(group_.Add(families->tokens)),
      step_duration_(group_.Add(families->step_duration)),
      comm_init_(group_.Add(families->comm_init_seconds)),
      host_memory_(group_.Add(families->host_memory_bytes)) {
  group_.Add(families->info, info).Set(1);
  for (const std::string_view name : report::kStepPhaseNames) {
    const std::string phase(name);
    phases_.emplace(phase, group_.Add(families->phase_seconds, {{"phase", phase}}));
  }
}

void RankSeries::SetStep(int64_t step) {
  if (static_cast<double>(step) > step_.Value()) step_.Set(static_cast<double>(step));
}

void RankSeries::Set(const RankTelemetry& telemetry) {
  tokens_.RaiseTo(Total(telemetry.tokens()));
  for (const double seconds : telemetry.recent_step_seconds()) {
    step_duration_.Observe(Total(seconds));
  }
  comm_init_.Set(Total(telemetry.comm_init_seconds()));
  host_memory_.Set(Total(telemetry.host_memory_bytes()));
  SetPhases(telemetry);
  SetCollectives(telemetry);
  SetMemory(telemetry);
}

void RankSeries::SetPhases(const RankTelemetry& telemetry) {
  double other = 0;
  for (const auto& [phase, seconds] : telemetry.phase_seconds()) {
    const auto known = phases_.find(phase);
    if (known == phases_.end() || phase == kOther) {
      other += Total(seconds);
    } else {
      known->second.RaiseTo(Total(seconds));
    }
  }
  phases_.at(kOther).RaiseTo(other);
}

RankSeries::OpGroup RankSeries::Bounded(const OpGroup& pair) const {
  const bool fits =
      collectives_.contains(pair) || collectives_.size() + 1 < size_t{kMaxCollectives};
  return fits ? pair : OpGroup(kOther, kOther);
}

void RankSeries::SetCollectives(const RankTelemetry& telemetry) {
  struct Sum {
    double seconds = 0;
    double calls = 0;
    double bytes = 0;
  };
  std::map<OpGroup, Sum> sums;
  for (const auto& count : telemetry.collectives()) {
    const OpGroup pair = Bounded({count.op(), count.group()});
    if (!collectives_.contains(pair)) {
      const Labels labels = {{"op", pair.first}, {"group", pair.second}};
      collectives_.emplace(pair, Collective{group_.Add(families_->collective_seconds, labels),
                                            group_.Add(families_->collective_calls, labels),
                                            group_.Add(families_->collective_bytes, labels)});
    }
    Sum& sum = sums[pair];
    sum.seconds += Total(count.seconds());
    sum.calls += Total(count.calls());
    sum.bytes += Total(count.bytes());
  }
  for (const auto& [pair, sum] : sums) {
    Collective& series = collectives_.at(pair);
    series.seconds.RaiseTo(sum.seconds);
    series.calls.RaiseTo(sum.calls);
    series.bytes.RaiseTo(sum.bytes);
  }
}

void RankSeries::SetMemory(const RankTelemetry& telemetry) {
  std::map<std::string, double> sums;
  for (const auto& [kind, bytes] : telemetry.memory_bytes()) {
    const bool fits = memory_.contains(kind) || memory_.size() + 1 < size_t{kMaxMemoryKinds};
    const std::string name = fits ? kind : kOther;
    if (!memory_.contains(name)) {
      memory_.emplace(name, group_.Add(families_->memory_bytes, {{"kind", name}}));
    }
    sums[name] += Total(bytes);
  }
  for (const auto& [name, bytes] : sums) memory_.at(name).Set(bytes);
}

}  // namespace mt::node
