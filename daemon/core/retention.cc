// A purge an hour, and a record of the time a minute.
#include "daemon/core/retention.h"

#include <algorithm>
#include <vector>

#include "common/base/log.h"
#include "common/control/numbers.h"
#include "daemon/jobs/job_states.h"
#include "daemon/ledger/ledger.h"
#include "daemon/membership/lease_table.h"
#include "daemon/membership/own_time.h"
#include "daemon/workers/node_removal.h"
#include "megatrain/v1/store.pb.h"

namespace mt::daemon {
namespace {

constexpr std::chrono::seconds kPurgeInterval{3'600};
// A store that kept ended jobs for years is cleaned in rounds.
constexpr size_t kJobsPerRound = 100;
constexpr std::chrono::seconds kNextRound{1};

}  // namespace

void Retention::Start() {
  const v1::StoredCluster& cluster = parts_.ledger->Cluster();
  WallTrust::Recorded last{.wall_us = cluster.written_us(),
                           .boot = {.id = cluster.boot_id(),
                                    .since = std::chrono::microseconds(cluster.written_boot_us())}};
  // A store of a version that did not record the time.
  if (last.wall_us == 0) last = {.wall_us = parts_.ledger->newest_event_us(), .boot = {}};
  const std::string fault = parts_.time->wall().Start(last);
  if (fault.empty()) return;
  const std::string text = fmt::format(
      "{}; until it returns, or for {} h, nothing is deleted and no deadline counts by it", fault,
      control::kWallDoubt.count());
  log::Error("the wall clock is implausible", {{"why", text}});
  parts_.ledger->AddEvent({.type = "WallClockImplausible", .message = text});
}

void Retention::Record() {
  const base::BootTime boot = parts_.time->Boot();
  v1::StoredCluster& cluster = parts_.ledger->Cluster();
  cluster.set_written_us(base::ToUnixMicros(parts_.time->WallNow()));
  cluster.set_written_boot_us(boot.since.count());
  cluster.set_boot_id(boot.id);
  parts_.ledger->MarkCluster(/*urgent=*/false);
}

void Retention::LeaveOut(std::chrono::microseconds jump) {
  log::Info("the wall clock is believed again", {{"jump_s", jump.count() / 1'000'000}});
  for (v1::StoredJob* job : parts_.ledger->LiveJobs()) {
    job->set_uncounted_us(job->uncounted_us() + std::max<int64_t>(0, jump.count()));
    parts_.ledger->MarkJob(*job, Change::kProgress);
  }
}

bool Retention::DeleteOldJobs(base::WallTime before) {
  const int64_t before_us = base::ToUnixMicros(before);
  std::vector<std::string> old;
  for (const v1::StoredJob* stored : parts_.ledger->Jobs()) {
    const v1::Job& job = stored->job();
    // Where a node still holds ranks of it, what it was is of use.
    const bool is_over = IsFinal(job.state()) && job.finished_us() > 0 &&
                         job.finished_us() < before_us &&
                         parts_.ledger->AllocationsOfJob(job.uid()).empty();
    if (!is_over) continue;
    old.push_back(job.uid());
    if (old.size() == kJobsPerRound) break;
  }
  for (const std::string& uid : old) {
    parts_.ledger->AddEvent({.type = "JobExpired", .message = "it ended long ago", .job_uid = uid});
    parts_.ledger->EraseJob(uid);
  }
  return old.size() == kJobsPerRound;
}

void Retention::RecordHeartbeats() {
  for (const v1::StoredWorker* worker : parts_.ledger->Workers()) {
    if (parts_.leases->StateOf(worker->node().name()) == v1::NODE_READY)
      parts_.ledger->MarkWorker(*worker, /*urgent=*/false);
  }
}

void Retention::Tick() {
  WallTrust& wall = parts_.time->wall();
  if (const auto jump = wall.Tick()) LeaveOut(*jump);
  const base::MonotonicTime now = parts_.time->Now();
  if (now >= next_record_) {
    next_record_ = now + control::kWallNoted;
    Record();
  }
  if (wall.is_doubted() || now < next_purge_) return;
  const base::WallTime time = parts_.time->WallNow();
  const Status purged = parts_.ledger->PurgeOlderThan(time);
  if (!purged.ok()) log::Warn("purge failed", {{"error", base::Message(purged)}});
  const bool more = DeleteOldJobs(time - control::kJobsKept);
  parts_.removal->DeleteGhosts(time - control::kGhostNodesKept);
  RecordHeartbeats();
  next_purge_ = now + (more ? kNextRound : kPurgeInterval);
}

}  // namespace mt::daemon
