// One RankSeries per rank, by job and epoch; a timer per ended job removes them.
#include "worker/node/agent/worker_metrics.h"

#include <algorithm>

#include "common/base/clock.h"
#include "common/layout/mesh.h"
#include "megatrain/v1/agent_state.pb.h"
#include "megatrain/v1/rank.pb.h"
#include "megatrain/v1/worker.pb.h"
#include "worker/node/agent/rank_series.h"

namespace mt::node {

using megatrain::v1::AllocationRecord;
using megatrain::v1::Assign;
using megatrain::v1::RankTelemetry;
using metrics::Labels;

struct WorkerMetrics::Families : RankFamilies {
  explicit Families(metrics::Registry* registry) : RankFamilies(registry) {}
};

struct WorkerMetrics::Own {
  Own(metrics::Registry* registry, const Labels& node)
      : disobeys(registry
                     ->AddGauge("mt_worker_disobeys",
                                "1 while the coordinator that answers is not the one to obey.")
                     .With(node)),
        term(registry->AddGauge("mt_worker_term", "Newest term of a coordinator that was obeyed.")
                 .With(node)),
        registered(registry
                       ->AddGauge("mt_worker_registered",
                                  "Whether the coordinator has accepted this worker's session.")
                       .With(node)),
        slots(registry->AddGauge("mt_worker_slots", "Slots of this worker by device and state.")),
        gpus(slots, node, "gpu"),
        cpu_slots(slots, node, "cpu"),
        reports_queued(registry
                           ->AddGauge("mt_worker_reports_queued",
                                      "Reports that the coordinator has not acknowledged.")
                           .With(node)),
        steps_dropped(registry
                          ->AddCounter("mt_worker_steps_dropped_total",
                                       "Step records given up while the coordinator was away.")
                          .With(node)),
        disconnects(registry
                        ->AddCounter("mt_worker_disconnects_total",
                                     "Sessions with the coordinator that have ended.")
                        .With(node)),
        heartbeat_rtt(registry
                          ->AddHistogram("mt_heartbeat_rtt_seconds",
                                         "From a heartbeat to the coordinator's answer.",
                                         {0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 30})
                          .With(node)),
        resident_memory(
            registry->AddGauge("mt_resident_memory_bytes", "Resident set of this process.").With()),
        start_time(
            registry->AddGauge("mt_start_timestamp_seconds", "When this process began to serve.")
                .With()) {}

  // Gauges of one kind of slot.
  struct SlotGauges {
    SlotGauges(const metrics::Family<metrics::Gauge>& family, const Labels& node,
               const std::string& device)
        : used(family.With(With(node, device, "used"))),
          free(family.With(With(node, device, "free"))),
          out_of_order(family.With(With(node, device, "out_of_order"))) {}

    static Labels With(Labels labels, const std::string& device, const std::string& state) {
      labels["device"] = device;
      labels["state"] = state;
      return labels;
    }
    void Set(const Slots& now) {
      used.Set(now.used);
      free.Set(now.free);
      out_of_order.Set(now.out_of_order);
    }

    metrics::Gauge used;
    metrics::Gauge free;
    metrics::Gauge out_of_order;
  };

  metrics::Gauge disobeys;
  metrics::Gauge term;
  metrics::Gauge registered;
  metrics::Family<metrics::Gauge> slots;
  SlotGauges gpus;
  SlotGauges cpu_slots;
  metrics::Gauge reports_queued;
  metrics::Counter steps_dropped;
  metrics::Counter disconnects;
  metrics::Histogram heartbeat_rtt;
  metrics::Gauge resident_memory;
  metrics::Gauge start_time;
};

struct WorkerMetrics::Job {
  std::string name;
  std::string name_space;
  std::map<int, std::unique_ptr<RankSeries>> ranks;
  EventLoop::TimerId removal = EventLoop::kNoTimer;
};

namespace {

// The rank's coordinates in the mesh. If the job's parallel sizes do not divide its world size,
// those of a mesh with data parallelism only.
Labels Place(const Assign& assign, int rank) {
  const auto& parallel = assign.spec().parallel();
  const auto size = [](int64_t value) {
    return static_cast<int>(std::clamp<int64_t>(value, 1, 1 << 20));
  };
  layout::MeshSizes sizes{.tp = size(parallel.tensor()),
                          .cp = size(parallel.context()),
                          .dp = 1,
                          .pp = size(parallel.pipeline())};
  const int64_t inner = int64_t{sizes.tp} * sizes.cp * sizes.pp;
  const bool fits = inner <= assign.world_size() && assign.world_size() % inner == 0;
  if (!fits) sizes = {};
  sizes.dp = size(fits ? assign.world_size() / inner : assign.world_size());
  const auto mesh = layout::Mesh::Create(sizes);
  layout::Coordinates at;
  if (mesh.ok() && rank >= 0 && rank < mesh->world_size()) at = mesh->CoordinatesOf(rank);
  return {{"tp", std::to_string(at.tp)},
          {"cp", std::to_string(at.cp)},
          {"dp", std::to_string(at.dp)},
          {"pp", std::to_string(at.pp)}};
}

}  // namespace

WorkerMetrics::WorkerMetrics(Config config, EventLoop* loop, metrics::Registry* registry)
    : config_(std::move(config)),
      loop_(loop),
      families_(std::make_unique<Families>(registry)),
      own_(std::make_unique<Own>(registry, Labels{{"node", config_.node}})) {
  metrics::AddBuildInfo(registry, config_.version);
  own_->start_time.Set(static_cast<double>(base::ToUnixMicros(base::Clock::Real()->WallNow())) /
                       1e6);
}

WorkerMetrics::~WorkerMetrics() {
  for (const auto& [key, job] : jobs_) loop_->Cancel(job->removal);
}

void WorkerMetrics::OnJob(const AllocationRecord& record) {
  const Assign& assign = record.assign();
  const std::string& name = assign.spec().name();
  const std::string name_space =
      assign.spec().namespace_().empty() ? "default" : assign.spec().namespace_();
  std::erase_if(jobs_, [&](const auto& entry) {
    const bool same = entry.second->name == name && entry.second->name_space == name_space;
    if (same) loop_->Cancel(entry.second->removal);
    return same;
  });
  auto job = std::make_unique<Job>();
  job->name = name;
  job->name_space = name_space;
  for (const auto& rank : record.ranks()) {
    const Labels at = Place(assign, rank.rank());
    const Labels labels = {{"mt_job", name},       {"mt_namespace", name_space},
                           {"node", config_.node}, {"rank", std::to_string(rank.rank())},
                           {"tp", at.at("tp")},    {"pp", at.at("pp")},
                           {"dp", at.at("dp")}};
    const Labels info = {{"cp", at.at("cp")},
                         {"slot", std::to_string(rank.slot())},
                         {"device", rank.gpu().empty() ? "cpu" : "gpu"},
                         {"gpu_uuid", rank.gpu()}};
    auto& series = job->ranks[rank.rank()];
    if (!series) series = std::make_unique<RankSeries>(families_.get(), labels, info);
  }
  jobs_[{assign.job_uid(), assign.epoch()}] = std::move(job);
}

RankSeries* WorkerMetrics::Find(const JobEpoch& job, int rank) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return nullptr;
  const auto series = found->second->ranks.find(rank);
  return series == found->second->ranks.end() ? nullptr : series->second.get();
}

void WorkerMetrics::OnStep(const JobEpoch& job, int rank, int64_t step) {
  if (RankSeries* series = Find(job, rank)) series->SetStep(step);
}

void WorkerMetrics::OnTelemetry(const JobEpoch& job, int rank, const RankTelemetry& telemetry) {
  if (RankSeries* series = Find(job, rank)) series->Set(telemetry);
}

void WorkerMetrics::OnJobGone(const JobEpoch& job) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return;
  loop_->Cancel(found->second->removal);
  found->second->removal = loop_->After(config_.kept_after_end, [this, job] { jobs_.erase(job); });
}

void WorkerMetrics::OnHeartbeatAnswered(std::chrono::nanoseconds round_trip) {
  own_->heartbeat_rtt.Observe(std::chrono::duration<double>(round_trip).count());
}

void WorkerMetrics::OnDisconnected() { own_->disconnects.Add(); }

void WorkerMetrics::Set(const Now& now) {
  own_->registered.Set(now.registered ? 1 : 0);
  own_->disobeys.Set(now.disobeys ? 1 : 0);
  own_->term.Set(static_cast<double>(now.term));
  own_->gpus.Set(now.gpus);
  own_->cpu_slots.Set(now.cpu_slots);
  own_->reports_queued.Set(static_cast<double>(now.reports_queued));
  own_->steps_dropped.RaiseTo(static_cast<double>(now.steps_dropped));
  own_->resident_memory.Set(static_cast<double>(now.resident_bytes));
}

}  // namespace mt::node
