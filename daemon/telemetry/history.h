// The history of every job: every step once, on disk before it is acknowledged, read back by range
// and resolution. Appends are cheap and stay in memory until Flush makes them durable, all jobs
// with one sync. Memory does not grow with the number of steps. Thread-safe: appends and flushes
// come from one thread, queries from any; a query reads the disk without holding the lock.
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
#include "daemon/telemetry/history_table.h"
#include "daemon/telemetry/job_history.h"

namespace mt::daemon {

inline constexpr int kHistoryDefaultPoints = 1'000;
inline constexpr int kHistoryMaxPoints = 10'000;

struct HistoryQuery {
  int64_t from_step = 0;                // 0: the first
  int64_t to_step = 0;                  // 0: the newest
  int64_t since_us = 0;                 // 0: any time
  int points = 0;                       // 0: kHistoryDefaultPoints
  std::vector<std::string> names = {};  // of columns; empty: all
};

struct HistoryView {
  HistoryTable rows{0};
  int64_t first_step = 0;  // of the whole history; 0: it is empty
  int64_t last_step = 0;
  std::vector<megatrain::v1::EvalRecord> evals;
  int64_t bytes_read = 0;  // of frames, from the disk
};

class History {
 public:
  // `folder` is made by the first write.
  explicit History(std::string folder);
  History(const History&) = delete;
  History& operator=(const History&) = delete;
  ~History();

  // Takes back what the journal holds, and removes the files of jobs that are not in `known`. Once,
  // before anything else. What cannot be read is logged and left out: never an error.
  void Recover(const std::set<std::string, std::less<>>& known_uids);

  // False where the step is held already (sent again), or there is no room while the disk fails.
  bool Append(std::string_view job_uid, const megatrain::v1::StepRecord& step);
  void AppendEval(std::string_view job_uid, const megatrain::v1::EvalRecord& eval);
  // The newest step that is held; {0, 0}: none.
  struct Newest {
    int64_t epoch = 0;
    int64_t step = 0;
  };
  Newest NewestOf(std::string_view job_uid);
  // The job has ended: the next flush moves its last steps out of the journal and lets go of it.
  void Close(std::string_view job_uid);
  // Removes the job's files.
  void Erase(std::string_view job_uid);

  // Everything appended so far is on disk when it returns OK. An error (logged once until it is
  // over) means that some is in memory only: nobody may be told that it is safe.
  Status Flush();
  // Called with the duration of each flush that wrote.
  void OnFlush(std::function<void(double seconds)> told) { told_ = std::move(told); }
  // Whether the last flush, if any, was OK.
  bool ok() const;
  bool has_unflushed() const;

  // Empty where nothing is known of the job. DataLoss never: damaged frames are skipped and logged.
  HistoryView Query(std::string_view job_uid, const HistoryQuery& query) const;
  // At most `limit` steps behind `after_step` and before `before_step`, one by one, and the
  // evaluations that belong among them.
  HistoryView Steps(std::string_view job_uid, int64_t after_step, int64_t before_step,
                    size_t limit) const;

  size_t MemoryBytes() const;
  int64_t num_errors() const;      // flushes that failed
  int64_t num_lost_steps() const;  // refused for want of room

 private:
  struct Job {
    explicit Job(const std::string& path) : steps(path + ".steps"), evals(path + ".evals") {}
    JobHistory steps;
    HistoryEvals evals;
    bool closing = false;
  };
  std::string PathOf(std::string_view job_uid) const;
  Job& Open(std::string_view job_uid) EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status FlushLocked() EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status FlushJob(const std::string& uid, Job* job) EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Status ShrinkJournal() EXCLUSIVE_LOCKS_REQUIRED(mu_);
  template <class Read>
  HistoryView WithJob(std::string_view job_uid, const Read& read) const;

  const std::string folder_;
  std::function<void(double seconds)> told_;
  mutable base::Mutex mu_;
  // Of jobs that get steps; the others are read from their files.
  std::map<std::string, std::unique_ptr<Job>, std::less<>> jobs_ GUARDED_BY(mu_);
  std::set<std::string, std::less<>> dirty_ GUARDED_BY(mu_);
  HistoryJournal journal_ GUARDED_BY(mu_);
  int64_t journal_limit_ GUARDED_BY(mu_);
  bool ok_ GUARDED_BY(mu_) = true;
  int64_t num_errors_ GUARDED_BY(mu_) = 0;
  int64_t num_lost_ GUARDED_BY(mu_) = 0;
};

}  // namespace mt::daemon
