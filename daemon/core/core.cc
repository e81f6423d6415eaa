// The parts of the coordinator in the order of their construction, and one round of the core.
#include "daemon/core/core.h"

#include <algorithm>

#include "common/base/ids.h"
#include "common/base/log.h"
#include "daemon/api/api.h"
#include "daemon/authority/authority.h"
#include "daemon/feeds/event_feed.h"
#include "daemon/feeds/feeds.h"
#include "daemon/hub/worker_hub.h"
#include "daemon/keeper/job_keeper.h"
#include "daemon/keeper/placer.h"
#include "daemon/ledger/ledger.h"
#include "daemon/membership/lease_table.h"
#include "daemon/rendezvous/key_values.h"
#include "daemon/telemetry/history.h"
#include "daemon/workers/orphans.h"
#include "daemon/workers/reports.h"
#include "daemon/workers/sessions.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {
namespace {

// What is not urgent (steps, rank states) waits for its commit at most so long.
constexpr std::chrono::milliseconds kFlushInterval{200};
constexpr std::chrono::hours kPurgeInterval{1};

}  // namespace

struct Core::Parts {
  Parts(Store* store, const base::Clock* the_clock, History* the_history)
      : clock(the_clock),
        history(the_history),
        uid(base::NewUid()),
        ledger(store, clock),
        hub(&ledger),
        feeds(&hub, clock, history),
        events(store),
        keeper({.ledger = &ledger, .hub = &hub, .rendezvous = &rendezvous, .clock = clock}),
        placer(
            {.ledger = &ledger, .hub = &hub, .keeper = &keeper, .leases = &leases, .clock = clock}),
        orphans({.ledger = &ledger, .hub = &hub, .keeper = &keeper}),
        reports({.ledger = &ledger,
                 .hub = &hub,
                 .keeper = &keeper,
                 .orphans = &orphans,
                 .rendezvous = &rendezvous,
                 .feeds = &feeds,
                 .clock = clock}),
        sessions({.ledger = &ledger,
                  .hub = &hub,
                  .leases = &leases,
                  .keeper = &keeper,
                  .placer = &placer,
                  .reports = &reports,
                  .orphans = &orphans,
                  .feeds = &feeds,
                  .rendezvous = &rendezvous,
                  .clock = clock,
                  .coordinator_uid = uid}),
        api({.ledger = &ledger,
             .leases = &leases,
             .keeper = &keeper,
             .placer = &placer,
             .feeds = &feeds,
             .events = &events,
             .sessions = &sessions,
             .orphans = &orphans,
             .clock = clock}),
        started(clock->Now()),
        wall_started(clock->WallNow()) {}

  void RecoverHistory();
  void FlushHistory();

  const base::Clock* clock;
  History* history;  // nullptr: none
  std::string uid;
  Authority authority;
  Ledger ledger;
  KeyValues rendezvous;
  LeaseTable leases;
  WorkerHub hub;
  Feeds feeds;
  EventFeed events;
  JobKeeper keeper;
  Placer placer;
  Orphans orphans;
  Reports reports;
  Sessions sessions;
  Api api;
  base::MonotonicTime started;
  base::WallTime wall_started;
  base::MonotonicTime next_flush{};
  base::MonotonicTime next_purge{};
};

void Core::Parts::RecoverHistory() {
  if (history == nullptr) return;
  std::set<std::string, std::less<>> uids;
  for (const v1::StoredJob* job : ledger.Jobs()) uids.insert(job->job().uid());
  for (const v1::StoredAllocation* allocation : ledger.Allocations())
    uids.insert(allocation->job_uid());
  const std::vector<std::string> deleted = ledger.DeletedJobs();
  history->Recover(uids, {deleted.begin(), deleted.end()});
}

void Core::Parts::FlushHistory() {
  const bool was_ok = history->ok();
  if (!history->Flush().ok() || was_ok) return;
  // The acknowledgements that were held back go out with the next commit.
  for (const v1::StoredWorker* worker : ledger.Workers()) {
    ledger.MarkWorker(*worker, /*urgent=*/false);
  }
}

Core::Core(Store* store, const base::Clock* clock, History* history)
    : parts_(std::make_unique<Parts>(store, clock, history)) {
  parts_->ledger.OnJobWritten([this](const v1::Job& job) { parts_->feeds.PublishJob(job); });
  parts_->ledger.OnEventsWritten(
      [this](const Ledger::Events& events) { parts_->events.Publish(events); });
  parts_->ledger.OnJobErased([this](const std::string& uid) { parts_->feeds.ForgetJob(uid); });
  parts_->ledger.OnWorkerWritten(
      [this](const v1::StoredWorker& worker) { parts_->sessions.Acknowledge(worker); });
}

Core::~Core() = default;

const std::string& Core::uid() const { return parts_->uid; }
Api& Core::api() { return parts_->api; }
Feeds& Core::feeds() { return parts_->feeds; }
EventFeed& Core::events() { return parts_->events; }
Sessions& Core::sessions() { return parts_->sessions; }
Ledger& Core::ledger() { return parts_->ledger; }
Authority& Core::authority() { return parts_->authority; }
const Reports& Core::reports() const { return parts_->reports; }
const JobKeeper& Core::keeper() const { return parts_->keeper; }

Status Core::Recover() {
  RETURN_IF_ERROR(parts_->ledger.Load(&parts_->rendezvous));
  parts_->RecoverHistory();
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
    // A wall clock that jumps ahead must not make what was acknowledged a moment ago look old.
    const base::WallTime wall =
        std::min(parts_->clock->WallNow(),
                 parts_->wall_started +
                     std::chrono::duration_cast<base::WallTime::duration>(now - parts_->started));
    const Status purged = parts_->ledger.PurgeOlderThan(wall);
    if (!purged.ok()) log::Warn("purge failed", {{"error", base::Message(purged)}});
  }
}

Status Core::Commit() {
  parts_->placer.Run();
  parts_->api.operations().AnswerWaiters();
  const bool flush = flush_;
  flush_ = false;
  // Steps are on disk before the store says that their reports were taken.
  if (parts_->history != nullptr && (flush || parts_->ledger.WillWrite(flush))) {
    parts_->FlushHistory();
  }
  return parts_->ledger.Commit(flush);
}

void Core::Shutdown(const Status& status) {
  flush_ = true;
  parts_->api.operations().CloseWaiters(status);
  parts_->feeds.CloseAll(status);
  parts_->events.CloseAll(status);
  parts_->hub.CloseAll(status);
}

}  // namespace mt::daemon
