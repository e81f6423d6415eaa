// The Prometheus series of one rank: created when the rank starts, updated from its beats. Counters
// are totals since the rank's start. The number of series is bounded: operations and memory kinds
// beyond a limit are counted as "other". Loop thread only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "common/metrics/registry.h"

namespace megatrain::v1 {
class RankTelemetry;
}

namespace mt::node {

// The families that all ranks share; created once per registry.
struct RankFamilies {
  explicit RankFamilies(metrics::Registry* registry);

  metrics::Family<metrics::Gauge> info;
  metrics::Family<metrics::Gauge> step;
  metrics::Family<metrics::Counter> tokens;
  metrics::Family<metrics::Histogram> step_duration;
  metrics::Family<metrics::Counter> phase_seconds;
  metrics::Family<metrics::Counter> collective_seconds;
  metrics::Family<metrics::Counter> collective_calls;
  metrics::Family<metrics::Counter> collective_bytes;
  metrics::Family<metrics::Gauge> comm_init_seconds;
  metrics::Family<metrics::Gauge> memory_bytes;
  metrics::Family<metrics::Gauge> host_memory_bytes;
};

class RankSeries {
 public:
  static constexpr int kMaxCollectives = 24;  // pairs of operation and group, including "other"
  static constexpr int kMaxMemoryKinds = 12;  // including "other"

  // `labels` are on every series, `info` additionally on mt_rank_info. `families` must outlive
  // this.
  RankSeries(const RankFamilies* families, const metrics::Labels& labels,
             const metrics::Labels& info);

  void SetStep(int64_t step);
  void Set(const megatrain::v1::RankTelemetry& telemetry);

 private:
  struct Collective {
    metrics::Counter seconds;
    metrics::Counter calls;
    metrics::Counter bytes;
  };
  using OpGroup = std::pair<std::string, std::string>;

  OpGroup Bounded(const OpGroup& pair) const;
  void SetPhases(const megatrain::v1::RankTelemetry& telemetry);
  void SetCollectives(const megatrain::v1::RankTelemetry& telemetry);
  void SetMemory(const megatrain::v1::RankTelemetry& telemetry);

  const RankFamilies* families_;
  metrics::SeriesGroup group_;
  metrics::Gauge step_;
  metrics::Counter tokens_;
  metrics::Histogram step_duration_;
  metrics::Gauge comm_init_;
  metrics::Gauge host_memory_;
  std::map<std::string, metrics::Counter, std::less<>> phases_;
  std::map<OpGroup, Collective> collectives_;
  std::map<std::string, metrics::Gauge> memory_;
};

}  // namespace mt::node
