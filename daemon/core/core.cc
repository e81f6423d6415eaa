// The parts of the coordinator in the order of their construction, and one round of the core.
#include "daemon/core/core.h"

#include <algorithm>

#include "common/base/ids.h"
#include "common/base/log.h"
#include "common/rpc/reason.h"
#include "daemon/api/api.h"
#include "daemon/authority/authority.h"
#include "daemon/core/begin_term.h"
#include "daemon/core/retention.h"
#include "daemon/feeds/event_feed.h"
#include "daemon/feeds/feeds.h"
#include "daemon/hub/worker_hub.h"
#include "daemon/keeper/job_keeper.h"
#include "daemon/keeper/placer.h"
#include "daemon/keeper/restore_gate.h"
#include "daemon/keeper/roll_call.h"
#include "daemon/ledger/ledger.h"
#include "daemon/ledger/run_jobs.h"
#include "daemon/membership/lease_table.h"
#include "daemon/membership/own_time.h"
#include "daemon/rendezvous/key_values.h"
#include "daemon/telemetry/history.h"
#include "daemon/workers/node_removal.h"
#include "daemon/workers/orphans.h"
#include "daemon/workers/reports.h"
#include "daemon/workers/sessions.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {
namespace {

// What is not urgent (steps, rank states) waits for its commit at most so long.
constexpr std::chrono::milliseconds kFlushInterval{200};

}  // namespace

struct Core::Parts {
  Parts(Store* store, const base::Clock* the_clock, History* the_history,
        const SilenceLimits& limits)
      : clock(the_clock),
        own_time(the_clock),
        history(the_history),
        uid(base::NewUid()),
        ledger(store, clock),
        leases(limits),
        hub(&ledger, &authority),
        feeds(&hub, clock, history),
        events(store),
        keeper({.ledger = &ledger,
                .hub = &hub,
                .rendezvous = &rendezvous,
                .clock = &own_time,
                .phantom_after = limits.phantom_after}),
        restore_gate({.ledger = &ledger, .leases = &leases, .clock = &own_time}),
        roll_call(&ledger, &leases),
        placer({.ledger = &ledger,
                .hub = &hub,
                .keeper = &keeper,
                .leases = &leases,
                .authority = &authority,
                .restore_gate = &restore_gate,
                .roll_call = &roll_call,
                .clock = &own_time}),
        orphans({.ledger = &ledger, .hub = &hub, .keeper = &keeper}),
        reports({.ledger = &ledger,
                 .hub = &hub,
                 .keeper = &keeper,
                 .orphans = &orphans,
                 .rendezvous = &rendezvous,
                 .feeds = &feeds,
                 .clock = &own_time}),
        sessions({.ledger = &ledger,
                  .hub = &hub,
                  .leases = &leases,
                  .keeper = &keeper,
                  .placer = &placer,
                  .reports = &reports,
                  .orphans = &orphans,
                  .feeds = &feeds,
                  .rendezvous = &rendezvous,
                  .authority = &authority,
                  .restore_gate = &restore_gate,
                  .roll_call = &roll_call,
                  .clock = &own_time,
                  .coordinator_uid = uid}),
        removal({.ledger = &ledger, .leases = &leases, .hub = &hub, .keeper = &keeper}),
        retention({.ledger = &ledger, .leases = &leases, .removal = &removal, .time = &own_time}),
        api({.authority = &authority,
             .ledger = &ledger,
             .leases = &leases,
             .keeper = &keeper,
             .placer = &placer,
             .feeds = &feeds,
             .events = &events,
             .sessions = &sessions,
             .removal = &removal,
             .restore_gate = &restore_gate,
             .begin_restore = [this] { return BeginRestore(&ledger, &authority); },
             .orphans = &orphans,
             .clock = clock,
             .own_time = &own_time}) {}

  void RecoverHistory();
  void FlushHistory();
  void FollowStore();

  const base::Clock* clock;
  OwnTime own_time;
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
  RestoreGate restore_gate;
  RollCall roll_call;
  Placer placer;
  Orphans orphans;
  Reports reports;
  Sessions sessions;
  NodeRemoval removal;
  Retention retention;
  Api api;
  base::MonotonicTime next_flush{};
};

void Core::Parts::RecoverHistory() {
  if (history == nullptr) return;
  std::set<std::string, std::less<>> uids;
  for (const v1::StoredJob* job : ledger.Jobs()) uids.insert(job->job().uid());
  for (const v1::StoredAllocation* allocation : ledger.Allocations())
    uids.insert(allocation->job_uid());
  const std::vector<std::string> names = ledger.DeletedJobs();
  std::set<std::string, std::less<>> deleted(names.begin(), names.end());
  for (const std::string& kept : KeptHistories(&ledger)) {
    uids.insert(kept);
    deleted.erase(kept);
  }
  history->Recover(uids, deleted);
}

void Core::Parts::FlushHistory() {
  const bool was_ok = history->ok();
  if (!history->Flush().ok() || was_ok) return;
  // The acknowledgements that were held back go out with the next commit.
  for (const v1::StoredWorker* worker : ledger.Workers()) {
    ledger.MarkWorker(*worker, /*urgent=*/false);
  }
}

// What the last commit says of the store: no order is given while the disk is full.
void Core::Parts::FollowStore() {
  const Status& refusal = ledger.refusal();
  const bool was_full = !authority.StoreRefusal().empty();
  authority.StoreRefuses(
      refusal.ok() ? "" : fmt::format("the state disk is full: {}", base::Message(refusal)));
  own_time.Hold(!authority.GivesOrders());
  if (was_full == !refusal.ok()) return;
  if (!was_full) {
    log::Error("the state disk is full: reads are answered, nothing else, until there is space",
               {{"error", base::Message(refusal)}});
    return;
  }
  log::Info("the state is written again");
  // What workers have reported meanwhile was not taken: they send it again in their next session.
  sessions.CloseAll(rpc::WithReason(base::Unavailable("the state disk was full; register again"),
                                    rpc::reason::kStoreReadOnly));
}

Core::Core(Store* store, const base::Clock* clock, History* history, const SilenceLimits& limits)
    : parts_(std::make_unique<Parts>(store, clock, history, limits)) {
  parts_->ledger.OnJobWritten([this](const v1::Job& job) { parts_->feeds.PublishJob(job); });
  parts_->ledger.OnEventsWritten(
      [this](const Ledger::Events& events) { parts_->events.Publish(events); });
  parts_->ledger.OnJobErased([this](const std::string& uid) {
    parts_->feeds.ForgetJob(uid, HistoriesGoneWith(&parts_->ledger, uid));
  });
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
  parts_->retention.Start();
  RETURN_IF_ERROR(BeginTerm(&parts_->ledger, &parts_->authority));
  parts_->RecoverHistory();
  parts_->sessions.Recover();
  parts_->restore_gate.Close();
  parts_->roll_call.Begin();
  parts_->keeper.Recover();
  log::Info("store loaded",
            {{"jobs", parts_->ledger.Jobs().size()}, {"live", parts_->ledger.LiveJobs().size()}});
  return Commit();
}

void Core::Turn() {
  const auto left_out = parts_->own_time.Turn();
  if (left_out.count() == 0) return;
  log::Warn("the coordinator stood still; leases and limits do not count it",
            {{"s", std::chrono::duration<double>(left_out).count()}});
}

void Core::Tick() {
  const base::MonotonicTime now = parts_->clock->Now();
  if (parts_->authority.GivesOrders()) {
    parts_->restore_gate.Tick();
    parts_->roll_call.Tick();
    parts_->sessions.Tick();
    parts_->api.reader_leases().Tick();
    parts_->keeper.Tick(/*placements=*/parts_->restore_gate.IsOpen());
    parts_->retention.Tick();
  }
  parts_->feeds.Tick();
  if (now >= parts_->next_flush) {
    flush_ = true;
    parts_->next_flush = now + kFlushInterval;
  }
}

Status Core::Commit() {
  if (parts_->authority.GivesOrders()) parts_->placer.Run();
  parts_->api.operations().AnswerWaiters();
  const bool flush = flush_;
  flush_ = false;
  // Steps are on disk before the store says that their reports were taken. On a full disk both are
  // tried at once, and seldom.
  const bool steps_too = flush && parts_->ledger.refusal().ok();
  if (parts_->history != nullptr && (steps_too || parts_->ledger.WillWrite(flush))) {
    parts_->FlushHistory();
  }
  Status status = parts_->ledger.Commit(flush);
  parts_->FollowStore();
  return status;
}

void Core::Shutdown(const Status& status) {
  flush_ = true;
  parts_->ledger.EndPatience();
  parts_->api.operations().CloseWaiters(status);
  parts_->feeds.CloseAll(status);
  parts_->events.CloseAll(status);
  parts_->hub.CloseAll(status);
}

}  // namespace mt::daemon
