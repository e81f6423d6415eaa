// Everything that must survive the coordinator, in memory: jobs, operations, request ids,
// allocations, workers, rendezvous. Callers change an entry and mark it; Commit writes what is
// marked in one transaction and then runs what waited for it: replies, messages, notifications. So
// nothing leaves the coordinator before it is on disk. Not thread-safe (the core's thread).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "daemon/rendezvous/key_values.h"
#include "daemon/store/store.h"

namespace megatrain::v1 {
enum Cause : int;
enum JobState : int;
class Event;
class Job;
class Operation;
class StoredAllocation;
class StoredCluster;
class StoredJob;
class StoredRequest;
class StoredWorker;
}  // namespace megatrain::v1

namespace mt::daemon {

namespace v1 = megatrain::v1;

// How soon a changed job must be on disk, and whether its watchers hear of it.
enum class Change {
  kProgress,  // with the next commit; silent
  kOwn,       // now; silent: what the coordinator has to remember, and is no news of the job
  kRanks,     // with the next commit; watchers hear of it then
  kState,     // now; watchers hear of it
};

struct AllocationKey {
  std::string job_uid;
  int64_t epoch;
  std::string node;
  auto operator<=>(const AllocationKey&) const = default;
};

class Ledger {
 public:
  // Both outlive the ledger.
  Ledger(Store* store, const base::Clock* clock);
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;
  ~Ledger();

  // Reads the whole store; rendezvous values go into *rendezvous. DataLoss names the row that
  // cannot be read.
  Status Load(KeyValues* rendezvous);

  // --- Jobs. Pointers stay valid for the ledger's life; after a change call MarkJob.
  v1::StoredJob* FindJob(std::string_view uid);
  // The newest job of that name; nullptr: there is none.
  v1::StoredJob* FindJobByName(std::string_view job_namespace, std::string_view name);
  v1::StoredJob* AddJob(std::unique_ptr<v1::StoredJob> job);
  void MarkJob(const v1::StoredJob& job, Change change);
  std::vector<v1::StoredJob*> Jobs();  // by uid
  std::vector<v1::StoredJob*> LiveJobs();
  // Every job that there was, by its row or by the tombstone that is left of it, in any order.
  void ForEachEver(const std::function<void(const v1::StoredJob&)>& see) const;
  // Forgets an ended job; only its names, its newest epoch, its times and its checkpoint directory
  // stay, for ever, as a tombstone: by it ranks and fences of the job are known to be over
  // (EndedInDirectory). The pointer is invalid afterwards; OnJobErased is told once it is on disk.
  void EraseJob(std::string_view uid);
  // The trace of a deleted job: name, end, newest epoch; nullptr: none.
  const v1::StoredJob* FindDeleted(std::string_view uid) const;
  std::vector<std::string> DeletedJobs() const;  // uids
  // The uids of ended jobs, deleted ones too, with that checkpoint directory: the newest 1,000,
  // oldest first.
  std::vector<std::string> EndedInDirectory(std::string_view directory) const;

  // --- Operations and request ids.
  v1::Operation* FindOperation(std::string_view name);
  v1::Operation* AddOperation(std::unique_ptr<v1::Operation> operation);
  void MarkOperation(const v1::Operation& operation);
  std::vector<v1::Operation*> Operations();  // oldest first
  // The operations of a job that are not done, oldest first.
  std::vector<v1::Operation*> OpenOperations(std::string_view job_uid);
  const v1::StoredRequest* FindRequest(std::string_view request_id) const;
  void AddRequest(std::unique_ptr<v1::StoredRequest> request);

  // --- Allocations.
  v1::StoredAllocation* FindAllocation(const AllocationKey& key);
  v1::StoredAllocation* AddAllocation(std::unique_ptr<v1::StoredAllocation> allocation);
  void MarkAllocation(const v1::StoredAllocation& allocation);
  void EraseAllocation(const AllocationKey& key);
  std::vector<v1::StoredAllocation*> AllocationsOfJob(std::string_view job_uid);
  std::vector<v1::StoredAllocation*> AllocationsOnNode(std::string_view node);
  std::vector<v1::StoredAllocation*> Allocations();
  // What the node's heartbeats say if its agent holds what the ledger says (held_digests.h).
  uint64_t HeldDigest(std::string_view node) const;

  // --- Workers, by node name.
  v1::StoredWorker* FindWorker(std::string_view node);
  v1::StoredWorker* PutWorker(std::unique_ptr<v1::StoredWorker> worker);
  // `urgent` false: with the next commit.
  void MarkWorker(const v1::StoredWorker& worker, bool urgent);
  void EraseWorker(std::string_view node);
  std::vector<v1::StoredWorker*> Workers();

  // --- What this store is: cluster, term. Empty where nothing was recorded yet; after a change
  // call MarkCluster; `urgent` false: with the next commit.
  v1::StoredCluster& Cluster();
  void MarkCluster(bool urgent = true);

  void PutRendezvous(const JobEpoch& job, std::string_view key, std::string_view value);
  void EraseRendezvous(const JobEpoch& job, std::string_view key);

  // --- Events. What is not known stays empty; the job's name is filled in.
  struct EventText {
    std::string type;
    std::string message;
    std::string job_uid = {};
    std::string node = {};
    std::string actor = {};
    std::string reason = {};
    std::string operation = {};
    v1::Cause cause = {};
    v1::JobState from = {};
    v1::JobState to = {};
    int64_t step = 0;
    int64_t word_step = 0;
  };
  void AddEvent(const EventText& event);

  // --- Commit.
  // Runs once everything that was changed until now is on disk, after the next Commit as a rule;
  // with an error where that failed: then nothing else goes out.
  void AfterCommit(std::function<void(const Status&)> action);
  // Runs after the next Commit even while the disk is full: answers to reads, which may show what
  // is not on disk yet in that time.
  void AfterRound(std::function<void(const Status&)> action);
  // Called for each job that was written and whose watchers are to hear of it, and for each written
  // worker.
  void OnJobWritten(std::function<void(const v1::Job&)> hook) { job_hook_ = std::move(hook); }
  void OnWorkerWritten(std::function<void(const v1::StoredWorker&)> hook) {
    worker_hook_ = std::move(hook);
  }
  using Events = std::vector<std::shared_ptr<const v1::Event>>;
  // Called with the events that were written, in order.
  void OnEventsWritten(std::function<void(const Events&)> hook) { event_hook_ = std::move(hook); }
  void OnJobErased(std::function<void(const std::string& uid)> hook) {
    erased_hook_ = std::move(hook);
  }
  // Blocks on the disk. Writes if something urgent is marked, or anything is and `flush` is set;
  // then runs the actions. Where the disk is full it returns OK, keeps what is to be written and
  // who waits for it, and tries again, once in kStoreRetry. After any other error the ledger
  // refuses every later commit.
  Status Commit(bool flush);
  // Why the last commit was refused and is to be tried again; OK: it was not.
  const Status& refusal() const { return refusal_; }
  // The coordinator ends: the next commit that a full disk refuses is an error like any other.
  void EndPatience() { patient_ = false; }
  bool has_unwritten() const { return !marks_.empty() || !extra_.empty(); }
  // Whether Commit(flush) would write; with a refusal, whether it is time to try again.
  bool WillWrite(bool flush) const;

  // Deletes request ids, finished operations and events whose time is over (A3) at this moment.
  Status PurgeOlderThan(base::WallTime now);
  // Unix time of the newest event that was there when the store was read; 0: none.
  int64_t newest_event_us() const { return newest_event_us_; }
  int64_t NowMicros() const;
  // The time of creation for a job that is submitted now: later than that of every other job, so
  // that the queue's order is the order of submission even within a microsecond or after the clock
  // went back.
  int64_t NextCreatedMicros() const;

 private:
  struct Tables;
  Status LoadJobs();
  void IndexJob(const v1::Job& job);
  using MarkKey = std::pair<Table, std::string>;
  void Mark(Table table, std::string key, bool urgent);
  Write MakeWrite(Table table, const std::string& key);
  struct Round;
  Round TakeRound();
  void PutBack(Round round);
  // Writes the round; OK where a full disk has refused it.
  Status WriteRound();
  void RunHooks(const Round& round);
  void NoteOpen(const v1::Operation& operation);

  Store* store_;
  const base::Clock* clock_;
  std::unique_ptr<Tables> tables_;
  int64_t newest_created_us_ = 0;
  std::set<MarkKey> marks_;
  std::set<std::string> published_;  // uids whose watchers hear of the next commit
  std::vector<Write> extra_;         // events and rendezvous
  Events new_events_;                // those in extra_
  std::vector<std::string> erased_;  // uids of jobs
  bool urgent_ = false;
  Status broken_;
  Status refusal_;
  bool patient_ = true;
  base::MonotonicTime next_try_{};  // with a refusal
  int64_t next_event_ = 1;
  int64_t newest_event_us_ = 0;
  std::vector<std::function<void(const Status&)>> actions_;
  std::vector<std::function<void(const Status&)>> round_actions_;
  std::function<void(const v1::Job&)> job_hook_;
  std::function<void(const v1::StoredWorker&)> worker_hook_;
  std::function<void(const Events&)> event_hook_;
  std::function<void(const std::string&)> erased_hook_;
};

}  // namespace mt::daemon
