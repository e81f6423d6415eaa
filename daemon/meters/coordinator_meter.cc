// The coordinator's own series, the set of jobs that are shown, and the update from the core.
#include "daemon/meters/coordinator_meter.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <set>
#include <unistd.h>
#include <utility>
#include <vector>

#include "common/base/files.h"
#include "common/base/log.h"
#include "daemon/api/api.h"
#include "daemon/authority/authority.h"
#include "daemon/core/core.h"
#include "daemon/feeds/feeds.h"
#include "daemon/jobs/job_states.h"
#include "daemon/keeper/job_keeper.h"
#include "daemon/ledger/ledger.h"
#include "daemon/telemetry/history.h"
#include "daemon/workers/reports.h"
#include "daemon/workers/sessions.h"
#include "megatrain/v1/api.pb.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {
namespace {

constexpr std::chrono::seconds kInterval{1};
constexpr double kMicrosPerSecond = 1e6;
// Upper bounds in seconds. A commit syncs once, so most of them take as long as the disk's sync.
const std::vector<double> kCommitSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                            0.1,   0.25,   0.5,   1,    5};
const std::vector<double> kQueueSeconds = {1, 5, 15, 60, 300, 900, 3'600, 14'400, 86'400};

std::string NameOf(const v1::Job& job) {
  return fmt::format("{}/{}", job.namespace_(), job.name());
}

// True while the coordinator knows that the job is saving a checkpoint.
bool IsSaving(Ledger& ledger, const v1::Job& job) {
  if (job.state() == v1::RELEASING) return true;
  const auto open = ledger.OpenOperations(job.uid());
  return std::ranges::any_of(
      open, [](const v1::Operation* operation) { return operation->verb() == "checkpoint"; });
}

}  // namespace

CoordinatorMeter::CoordinatorMeter(Config config)
    : config_(std::move(config)), families_(config_.registry) {
  metrics::AddBuildInfo(config_.registry, config_.version);
  DeclareOwn(config_.registry);
}

void CoordinatorMeter::DeclareOwn(metrics::Registry* registry) {
  registry->AddGauge("mt_start_timestamp_seconds", "When this process began to serve.")
      .With()
      .Set(static_cast<double>(base::ToUnixMicros(config_.clock->WallNow())) / kMicrosPerSecond);
  resident_ = registry->AddGauge("mt_resident_memory_bytes", "Memory of this process.").With();
  superseded_ =
      registry->AddGauge("mt_superseded", "1 while another coordinator of this cluster is obeyed.")
          .With();
  term_ = registry->AddGauge("mt_term", "Raised at every start and declared restore.").With();
  queue_depth_ = registry->AddGauge("mt_queue_depth", "Jobs in QUEUED.").With();
  storage_free_ = registry->AddGauge("mt_storage_free_bytes", "Free on the file system of a root.")
                      .With({{"root", "state"}});
  store_read_only_ =
      registry
          ->AddGauge("mt_store_read_only",
                     "1 while the state disk is full: reads are answered, nothing is changed.")
          .With();
  last_heartbeat_ = registry->AddGauge("mt_worker_last_heartbeat_timestamp_seconds",
                                       "Last heartbeat of each registered worker.");
  const auto slots = registry->AddGauge("mt_slots", "Slots of all workers.");
  for (const char* device : {"cpu", "gpu"}) {
    for (const char* state : {"free", "used", "out_of_order", "unreachable"})
      slots_[{device, state}] = slots.With({{"device", device}, {"state", state}});
  }
  const auto watchers = registry->AddGauge("mt_watchers", "Open streams of clients.");
  for (const char* stream : {"jobs", "metrics", "logs", "events"}) {
    watchers_[stream] = watchers.With({{"stream", stream}});
  }
  const auto workers = registry->AddGauge("mt_workers", "Registered workers.");
  workers_[v1::NODE_READY] = workers.With({{"state", "ready"}});
  workers_[v1::NODE_SUSPECT] = workers.With({{"state", "suspect"}});
  workers_[v1::NODE_LOST] = workers.With({{"state", "lost"}});
  workers_[v1::NODE_DEAD] = workers.With({{"state", "dead"}});
  queue_wait_ =
      registry->AddHistogram("mt_queue_wait_seconds", "From QUEUED to placed.", kQueueSeconds)
          .With();
  commit_seconds_ =
      registry
          ->AddHistogram("mt_store_commit_seconds", "Transactions of the store, with their sync.",
                         kCommitSeconds)
          .With();
  history_seconds_ =
      registry
          ->AddHistogram("mt_history_flush_seconds", "Writing steps to the history, with the sync.",
                         kCommitSeconds)
          .With();
  const auto counter = [registry](std::string_view name, std::string_view help) {
    return registry->AddCounter(name, help).With();
  };
  leases_ = counter("mt_lease_expirations_total", "Workers that became lost.");
  fenced_ = counter("mt_fenced_messages_total", "Messages of closed epochs, refused.");
  held_mismatches_ =
      counter("mt_held_mismatches_total", "Heartbeats that held other ranks than the ledger says.");
  malformed_ = counter("mt_malformed_messages_total", "Messages of workers, refused.");
  invalid_ = counter("mt_state_transitions_invalid_total", "Transitions that no table allows.");
  history_errors_ = counter("mt_history_errors_total", "Writes of the history that failed.");
  dropped_ = counter("mt_events_dropped_total", "Messages left out of streams of slow clients.");
}

void CoordinatorMeter::Update(Core& core) {
  const base::MonotonicTime now = config_.clock->Now();
  if (now < next_update_) return;
  const JobMeter::Moment moment{.now = now,
                                .wall_us = base::ToUnixMicros(config_.clock->WallNow())};
  const bool done = config_.registry->TryUpdate([&] {
    TakeEvents(core);
    UpdateJobs(core, moment);
    UpdateNodes(core);
    UpdateCounts(core);
  });
  if (done) next_update_ = now + kInterval;
}

void CoordinatorMeter::TakeEvents(Core& core) {
  const JobMeter::Moment moment{.now = config_.clock->Now(),
                                .wall_us = base::ToUnixMicros(config_.clock->WallNow())};
  if (events_ == nullptr) {
    auto watched = core.events().Watch({.job_uid = "",
                                        .since_seq = std::numeric_limits<int64_t>::max(),
                                        .limit = 1,
                                        .follow = true,
                                        .types = {"StateChanged", "CheckpointFailed", "NodeLost"}});
    if (!watched.ok()) return;
    events_ = std::move(watched).value();
  }
  for (auto taken = events_->Take(nullptr); taken.item.has_value();
       taken = events_->Take(nullptr)) {
    if (taken.item->event != nullptr) TakeEvent(core, *taken.item->event, moment);
  }
}

void CoordinatorMeter::TakeEvent(Core& core, const v1::Event& event,
                                 const JobMeter::Moment& moment) {
  if (event.type() == "NodeLost") leases_.Add();
  if (event.job_uid().empty()) return;
  const v1::StoredJob* job = core.ledger().FindJob(event.job_uid());
  if (job == nullptr) return;
  // A job that started and ended between two updates gets a meter here.
  JobMeter* meter = MeterOf(job->job(), moment);
  if (meter != nullptr) meter->OnEvent(event);
  if (event.to() == v1::QUEUED) queued_us_[event.job_uid()] = event.time_us();
  if (event.from() != v1::QUEUED || event.to() != v1::ADMITTED) return;
  const auto queued = queued_us_.find(event.job_uid());
  const int64_t since = queued == queued_us_.end() ? job->job().created_us() : queued->second;
  queue_wait_.Observe(
      std::max(0.0, static_cast<double>(event.time_us() - since) / kMicrosPerSecond));
  if (queued != queued_us_.end()) queued_us_.erase(queued);
}

JobMeter* CoordinatorMeter::MeterOf(const v1::Job& job, const JobMeter::Moment& moment) {
  Shown& shown = jobs_[NameOf(job)];
  if (shown.uid != job.uid()) {
    // Of two jobs with the same name the later one is shown; only that one can be live.
    const bool late = !shown.uid.empty() && IsFinal(job.state());
    if (late) return nullptr;
    shown.meter.reset();  // removes the series before the same ones are created
    shown.meter = std::make_unique<JobMeter>(&families_, job, moment);
    shown.uid = job.uid();
  }
  return shown.meter.get();
}

void CoordinatorMeter::UpdateJobs(Core& core, const JobMeter::Moment& moment) {
  Ledger& ledger = core.ledger();
  int queued = 0;
  for (const v1::StoredJob* stored : ledger.LiveJobs()) {
    MeterOf(stored->job(), moment);
    queued += stored->job().state() == v1::QUEUED ? 1 : 0;
  }
  queue_depth_.Set(queued);
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    const v1::StoredJob* stored = ledger.FindJob(it->second.uid);
    if (stored == nullptr || it->second.meter->IsOver(moment.now)) {
      queued_us_.erase(it->second.uid);
      it = jobs_.erase(it);
      continue;
    }
    const v1::Job& job = stored->job();
    it->second.meter->Update(job, core.feeds().FindSteps(job.uid()), IsSaving(ledger, job), moment);
    ++it;
  }
}

void CoordinatorMeter::UpdateNodes(Core& core) {
  v1::ListNodesResponse nodes;
  core.api().nodes().List(&nodes);
  std::map<int, int> by_state;
  std::map<SlotKind, int> slots;
  std::set<std::string> known;
  for (const v1::Node& node : nodes.nodes()) {
    ++by_state[node.state()];
    const bool reachable = node.state() == v1::NODE_READY || node.state() == v1::NODE_SUSPECT;
    for (const v1::Slot& slot : node.slots()) {
      const char* state = !reachable                     ? "unreachable"
                          : !slot.job_uid().empty()      ? "used"
                          : !slot.out_of_order().empty() ? "out_of_order"
                                                         : "free";
      ++slots[{slot.device() == v1::GPU ? "gpu" : "cpu", state}];
    }
    known.insert(node.name());
    if (!nodes_.contains(node.name())) {
      auto [group, is_new] =
          nodes_.emplace(node.name(), metrics::SeriesGroup(metrics::Labels{{"node", node.name()}}));
      heartbeats_[node.name()] = group->second.Add(last_heartbeat_);
    }
    heartbeats_[node.name()].Set(static_cast<double>(node.last_heartbeat_us()) / kMicrosPerSecond);
  }
  for (auto& [state, gauge] : workers_) gauge.Set(by_state[state]);
  for (auto& [kind, gauge] : slots_) gauge.Set(slots[kind]);
  std::erase_if(heartbeats_, [&](const auto& entry) { return !known.contains(entry.first); });
  std::erase_if(nodes_, [&](const auto& entry) { return !known.contains(entry.first); });
}

void CoordinatorMeter::UpdateCounts(Core& core) {
  const Feeds& feeds = core.feeds();
  store_read_only_.Set(core.ledger().refusal().ok() ? 0 : 1);
  fenced_.RaiseTo(static_cast<double>(core.reports().num_fenced()));
  held_mismatches_.RaiseTo(static_cast<double>(core.sessions().num_held_mismatches()));
  malformed_.RaiseTo(static_cast<double>(core.reports().num_malformed()));
  superseded_.Set(core.authority().IsSuperseded() ? 1 : 0);
  term_.Set(static_cast<double>(core.ledger().Cluster().term()));
  invalid_.RaiseTo(static_cast<double>(core.keeper().num_refused()));
  dropped_.RaiseTo(static_cast<double>(feeds.num_dropped()));
  if (config_.history != nullptr) {
    history_errors_.RaiseTo(static_cast<double>(config_.history->num_errors()));
  }
  const auto set = [this](const char* stream, size_t count) {
    watchers_[stream].Set(static_cast<double>(count));
  };
  set("jobs", feeds.jobs().num_watchers());
  set("metrics", feeds.num_metrics_readers());
  set("logs", feeds.num_log_requests());
  // One of the readers is this meter.
  set("events", core.events().num_readers() - (events_ == nullptr ? 0 : 1));
}

void CoordinatorMeter::UpdateProcess() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  if (statm >> total >> resident) {
    resident_.Set(static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)));
  }
  const auto free = base::FreeBytes(config_.state_dir);
  if (free.ok()) storage_free_.Set(static_cast<double>(*free));
}

}  // namespace mt::daemon
