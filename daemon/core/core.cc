#include "daemon/core/core.h"

#include "common/base/ids.h"
#include "common/base/log.h"
#include "daemon/core/api.h"
#include "daemon/core/feeds.h"
#include "daemon/core/job_keeper.h"
#include "daemon/core/ledger.h"
#include "daemon/core/placer.h"
#include "daemon/core/reports.h"
#include "daemon/core/sessions.h"
#include "daemon/core/worker_hub.h"
#include "daemon/membership/lease_table.h"
#include "daemon/rendezvous/key_values.h"

namespace mt::daemon {
namespace {

// How long what is not urgent (steps, rank states) may wait for its commit.
constexpr std::chrono::milliseconds kFlushInterval{200};
constexpr std::chrono::hours kPurgeInterval{1};

}  // namespace

struct Core::Parts {
  Parts(Store* store, const base::Clock* the_clock)
      : clock(the_clock),
        ledger(store, clock),
        hub(&ledger),
        feeds(&hub, clock),
        keeper({.ledger = &ledger, .hub = &hub, .rendezvous = &rendezvous, .clock = clock}),
        placer(
            {.ledger = &ledger, .hub = &hub, .keeper = &keeper, .leases = &leases, .clock = clock}),
        reports({.ledger = &ledger,
                 .hub = &hub,
                 .keeper = &keeper,
                 .rendezvous = &rendezvous,
                 .feeds = &feeds,
                 .clock = clock}),
        sessions({.ledger = &ledger,
                  .hub = &hub,
                  .leases = &leases,
                  .keeper = &keeper,
                  .placer = &placer,
                  .reports = &reports,
                  .feeds = &feeds,
                  .rendezvous = &rendezvous,
                  .clock = clock,
                  .coordinator_uid = base::NewUid()}),
        api({.ledger = &ledger,
             .hub = &hub,
             .leases = &leases,
             .keeper = &keeper,
             .placer = &placer,
             .feeds = &feeds,
             .clock = clock}) {}

  const base::Clock* clock;
  Ledger ledger;
  KeyValues rendezvous;
  LeaseTable leases;
  WorkerHub hub;
  Feeds feeds;
  JobKeeper keeper;
  Placer placer;
  Reports reports;
  Sessions sessions;
  Api api;
  base::MonotonicTime next_flush{};
  base::MonotonicTime next_purge{};
};

Core::Core(Store* store, const base::Clock* clock) : parts_(std::make_unique<Parts>(store, clock)) {
  parts_->ledger.OnJobWritten([this](const v1::Job& job) { parts_->feeds.PublishJob(job); });
  parts_->ledger.OnWorkerWritten(
      [this](const v1::StoredWorker& worker) { parts_->sessions.Acknowledge(worker); });
}

Core::~Core() = default;

Api& Core::api() { return parts_->api; }
Feeds& Core::feeds() { return parts_->feeds; }
Sessions& Core::sessions() { return parts_->sessions; }
Ledger& Core::ledger() { return parts_->ledger; }
const Reports& Core::reports() const { return parts_->reports; }
const JobKeeper& Core::keeper() const { return parts_->keeper; }

Status Core::Recover() {
  RETURN_IF_ERROR(parts_->ledger.Load(&parts_->rendezvous));
  parts_->sessions.Recover();
  parts_->keeper.Recover();
  log::Info("store loaded",
            {{"jobs", parts_->ledger.Jobs().size()}, {"live", parts_->ledger.LiveJobs().size()}});
  return Commit();
}

void Core::Tick() {
  const base::MonotonicTime now = parts_->clock->Now();
  parts_->sessions.Tick();
  parts_->keeper.Tick();
  parts_->feeds.Tick();
  if (now >= parts_->next_flush) {
    flush_ = true;
    parts_->next_flush = now + kFlushInterval;
  }
  if (now >= parts_->next_purge) {
    parts_->next_purge = now + kPurgeInterval;
    const Status purged = parts_->ledger.PurgeOlderThan(parts_->clock->WallNow());
    if (!purged.ok()) log::Warn("purge failed", {{"error", base::Message(purged)}});
  }
}

Status Core::Commit() {
  parts_->placer.Run();
  parts_->api.AnswerWaiters();
  const bool flush = flush_;
  flush_ = false;
  return parts_->ledger.Commit(flush);
}

void Core::Shutdown(const Status& status) {
  flush_ = true;
  parts_->api.CloseWaiters(status);
  parts_->feeds.CloseAll(status);
  parts_->hub.CloseAll(status);
}

}  // namespace mt::daemon
