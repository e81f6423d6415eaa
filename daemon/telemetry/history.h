// The history of every job: each step once, on disk before it is acknowledged to the worker, and
// readable by range and resolution. Appends stay in memory until Flush makes those of all jobs
// durable with one sync. Memory does not grow with the number of steps. Thread-safe: appends and
// flushes come from one thread, queries from any; a query reads the disk without holding the lock.
// Formats: FORMAT.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "daemon/telemetry/history_evals.h"
#include "daemon/telemetry/history_journal.h"
#include "daemon/telemetry/history_replaced.h"
#include "daemon/telemetry/history_runs.h"
#include "daemon/telemetry/history_table.h"
#include "daemon/telemetry/history_view.h"
#include "daemon/telemetry/job_history.h"

namespace mt::daemon {

// Number of points of an answer: the default, and the largest that is accepted.
inline constexpr int kHistoryDefaultPoints = 1'000;
inline constexpr int kHistoryMaxPoints = 10'000;

// What to read of a job's history.
struct HistoryQuery {
  int64_t from_step = 0;                // 0: the first step
  int64_t to_step = 0;                  // 0: the newest step
  int64_t since_us = 0;                 // Unix time; 0: not limited
  int points = 0;                       // at most so many; 0: kHistoryDefaultPoints
  std::vector<std::string> names = {};  // names of columns; empty: all
  bool samples = false;                 // evaluations come with theirs
};

// A page of a walk through every step of a range.
struct HistoryWalk {
  int64_t after_step = 0;  // the last step of the page before; 0: the first page
  int64_t from_step = 0;   // the range, as in HistoryQuery
  int64_t to_step = 0;
  int64_t since_us = 0;
  int limit = 0;                        // at most so many steps; above 0
  std::vector<std::string> names = {};  // names of columns; empty: all
};

// The answer: rows of single steps, or of buckets with minimum, maximum and last value.
struct HistoryView {
  HistoryTable rows{0};
  int64_t first_step = 0;  // first step of the whole history; 0: it is empty
  // Last step of the whole history.
  int64_t last_step = 0;
  int64_t epoch = 0;       // the newest that has steps
  int64_t epoch_base = 0;  // the last step before its first one
  int64_t next_step = 0;   // of a walk: after_step of the next page; 0: this is the last one
  std::vector<megatrain::v1::EvalRecord> evals;
  std::vector<megatrain::v1::EpochRun> runs;  // of the whole history; of a walk on its first page
  int64_t bytes_read = 0;                     // bytes of frames read from the disk
  // --- Of a run (run_history.h).
  std::vector<int> attempts;  // of each row; 0: not known; empty: of none
  int64_t own_from_step = 0;  // rows up to this step are of jobs before the one asked for
};

// All jobs' histories in one folder: files per job and one journal.
class History {
 public:
  // `folder` is created by the first write.
  explicit History(std::string folder);
  History(const History&) = delete;
  History& operator=(const History&) = delete;
  ~History();

  using Uids = std::set<std::string, std::less<>>;
  // Restores the rows that the journal holds. The files of jobs in `deleted_uids` are removed;
  // those of jobs that are in neither set, with their rows in the journal, are set aside in the
  // folder `unknown`: this store may be an older one. Call it once, before anything else. What
  // cannot be read is logged and skipped; there is no error.
  void Recover(const Uids& known_uids, const Uids& deleted_uids = {});
  // Makes what was set aside of the job its history again; nothing where it has one.
  void BringBack(std::string_view job_uid);

  // Adds a step in memory. Returns false where the step is already held (a repeat), or where there
  // is no room because the disk has refused writes.
  bool Append(std::string_view job_uid, const megatrain::v1::StepRecord& step);
  // Adds an evaluation in memory.
  void AppendEval(std::string_view job_uid, const megatrain::v1::EvalRecord& eval);
  // Adds in memory which run an epoch trains.
  void AppendRun(std::string_view job_uid, const megatrain::v1::EpochRun& run);
  // The newest step that is held, in memory or on disk; {0, 0}: none.
  struct Newest {
    int64_t epoch = 0;
    int64_t step = 0;
  };
  Newest NewestOf(std::string_view job_uid);
  // The job has ended: the next flush moves its last steps from the journal to its file and
  // releases its memory. A later Append reopens it.
  void Close(std::string_view job_uid);
  // Removes the job's files; errors are ignored.
  void Erase(std::string_view job_uid);

  // Makes everything appended so far durable. After an error (logged once until a flush succeeds)
  // some of it exists in memory only, so it must not be acknowledged. Blocks.
  Status Flush();
  // Sets a callback for the duration of each flush that had something to write. Set it before the
  // first flush; it runs with the lock held.
  void OnFlush(std::function<void(double seconds)> told) { told_ = std::move(told); }
  // True unless the last flush failed.
  bool ok() const;
  // True where something was appended since the last successful flush.
  bool has_unflushed() const;

  // The rows of a range, thinned to about query.points. Empty for an unknown job. Damaged frames
  // are skipped and logged, never an error.
  HistoryView Query(std::string_view job_uid, const HistoryQuery& query) const;
  // One page: at most kHistoryMaxPoints steps, and no more than a message holds. A walk reads each
  // step of a range once; where `epoch` has changed since the page before, steps after the base of
  // an epoch that is newer than that were replaced. Damaged frames are skipped and logged.
  HistoryView Walk(std::string_view job_uid, const HistoryWalk& walk) const;
  // Single steps with after_step < step < before_step, at most the first `limit` of them, and the
  // evaluations within their range.
  HistoryView Steps(std::string_view job_uid, int64_t after_step, int64_t before_step,
                    size_t limit) const;

  // The rows of one level between the ends of the range, to the step (history_piece.h), at least
  // its limit of them where there are so many, and the evaluations in the range, with their samples
  // where it asks for them. Of `since_us` as Query.
  HistoryView Part(std::string_view job_uid, int level, const HistoryRange& range,
                   const std::vector<std::string>& names) const;

  // Memory of the rows and indexes that are held.
  size_t MemoryBytes() const;
  int64_t num_errors() const;      // number of failed flushes
  int64_t num_lost_steps() const;  // steps refused because there was no room

 private:
  struct Job {
    explicit Job(const std::string& path)
        : replaced(path + ".replaced"),
          steps(path + ".steps", &replaced),
          evals(path + ".evals"),
          runs(path + ".runs") {}
    HistoryReplaced replaced;
    JobHistory steps;
    HistoryEvals evals;
    HistoryRuns runs;
    bool closing = false;
  };
  // What is in no file yet.
  struct Unwritten {
    std::string evals, runs, replaced;
  };
  void SetFileAside(const std::string& name) EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeJournaled(const std::string& uid, const HistoryTable& rows, bool known)
      EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Job& Open(std::string_view job_uid) EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status FlushLocked() EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status FlushJob(const std::string& uid, Job* job) EXCLUSIVE_LOCKS_REQUIRED(mu_);
  template <class Read>
  HistoryView WithJob(std::string_view job_uid, const Read& read) const;

  const std::string folder_;
  std::function<void(double seconds)> told_;
  mutable base::Mutex mu_;
  // Jobs that receive steps; the others are read from their files.
  std::map<std::string, std::unique_ptr<Job>, std::less<>> jobs_ GUARDED_BY(mu_);
  std::set<std::string, std::less<>> dirty_ GUARDED_BY(mu_);
  Uids set_aside_ GUARDED_BY(mu_);  // jobs with files in the folder `unknown`
  HistoryJournal journal_ GUARDED_BY(mu_);
  int64_t journal_limit_ GUARDED_BY(mu_);
  bool ok_ GUARDED_BY(mu_) = true;
  int64_t num_errors_ GUARDED_BY(mu_) = 0;
  int64_t num_lost_ GUARDED_BY(mu_) = 0;
};

}  // namespace mt::daemon
