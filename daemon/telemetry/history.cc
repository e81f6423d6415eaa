// Appends mark their job as dirty. Flush writes full frames to the files of dirty jobs and all
// remaining new steps, with a single sync, to the journal they share.
#include "daemon/telemetry/history.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <limits>
#include <utility>

#include "common/base/files.h"
#include "common/base/log.h"
#include "daemon/telemetry/history_piece.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

namespace v1 = megatrain::v1;
namespace fs = std::filesystem;

// The journal is rewritten when it exceeds this size, or this factor times its needed content.
constexpr int64_t kJournalBytes = 16 << 20;
constexpr int64_t kJournalFactor = 4;
// Ends of the names of a job's files.
constexpr std::array<std::string_view, 4> kExtensions = {".steps", ".evals", ".runs", ".replaced"};
// Folder for the files of jobs that the store does not know.
constexpr char kUnknown[] = "unknown";
constexpr int64_t kForever = std::numeric_limits<int64_t>::max();

// What an answer says of the whole history.
HistoryView HeadOf(const JobHistory& job) {
  HistoryView head;
  head.first_step = job.first_step();
  head.last_step = job.last_step();
  head.epoch = job.last_epoch();
  head.epoch_base = job.epoch_base();
  return head;
}

// The steps as rows of the level, at most as many as the range has.
HistoryTable BucketsOf(const HistoryTable& steps, int level, const HistoryRange& range) {
  HistoryTable out(level);
  for (size_t row = 0; row < steps.num_rows(); ++row) {
    if (steps.times_us[row] < range.since_us) continue;
    const bool same =
        level > 0 && !out.empty() &&
        HistoryBucketOf(out.steps.back(), level) == HistoryBucketOf(steps.steps[row], level);
    if (!same && out.num_rows() >= range.limit) break;
    if (same) {
      out.MergeIntoLast(steps, row);
    } else {
      out.AppendRow(steps, row);
    }
  }
  return out;
}

// Under this name a job that was set aside is like any other.
std::string HiddenName(std::string_view uid) { return fmt::format("{}/{}", kUnknown, uid); }

}  // namespace

History::History(std::string folder)
    : folder_(std::move(folder)),
      journal_(base::JoinPath(folder_, "journal")),
      journal_limit_(kJournalBytes) {}

History::~History() = default;

void History::SetFileAside(const std::string& name) {
  const fs::path target = fs::path(base::JoinPath(folder_, kUnknown)) / name;
  set_aside_.insert(target.stem().string());
  std::error_code error;
  // Never over what was set aside before.
  if (fs::exists(target, error)) return;
  fs::rename(base::JoinPath(folder_, name), target, error);
  if (error) {
    log::Error("history: files of an unknown job stay where they are",
               {{"file", name}, {"error", error.message()}});
  }
}

void History::TakeJournaled(const std::string& uid, const HistoryTable& rows, bool known) {
  Job& job = Open(known ? uid : HiddenName(uid));
  for (size_t row = 0; row < rows.num_rows(); ++row) job.steps.AppendRow(rows, row);
  job.steps.MarkJournaled();
  if (known) return;
  // The next flush moves them to a file of their own: nobody else asks for them.
  job.closing = true;
  dirty_.insert(HiddenName(uid));
  set_aside_.insert(uid);
}

void History::Recover(const Uids& known_uids, const Uids& deleted_uids) {
  const base::MutexLock lock(&mu_);
  std::vector<std::string> unknown;
  std::error_code error;
  for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
    const std::string extension = it->path().extension();
    const std::string uid = it->path().stem();
    if (std::ranges::find(kExtensions, extension) == kExtensions.end() || known_uids.contains(uid))
      continue;
    if (!deleted_uids.contains(uid)) {
      unknown.push_back(it->path().filename());
      continue;
    }
    std::error_code ignored;
    fs::remove(it->path(), ignored);
  }
  const std::string aside = base::JoinPath(folder_, kUnknown);
  if (fs::exists(folder_, error)) {
    const Status made = base::MakeDirs(aside);
    if (!made.ok()) log::Error("history: no folder", {{"error", base::Message(made)}});
  }
  for (fs::directory_iterator it(aside, error), end; !error && it != end; it.increment(error))
    set_aside_.insert(it->path().stem().string());
  for (const std::string& name : unknown) SetFileAside(name);
  const Status replayed = journal_.Replay(
      [&](const std::string& name, const HistoryTable& rows) NO_THREAD_SAFETY_ANALYSIS {
        const std::string prefix = std::string(kUnknown) + "/";
        const std::string uid = name.starts_with(prefix) ? name.substr(prefix.size()) : name;
        if (!deleted_uids.contains(uid)) TakeJournaled(uid, rows, known_uids.contains(uid));
      });
  if (!replayed.ok()) {
    log::Error("history: the journal cannot be read", {{"error", base::Message(replayed)}});
  }
}

void History::BringBack(std::string_view job_uid) {
  const base::MutexLock lock(&mu_);
  const auto aside = set_aside_.find(job_uid);
  if (aside == set_aside_.end()) return;
  const std::string uid(job_uid);
  const std::string hidden = HiddenName(uid);
  if (const auto waiting = jobs_.find(hidden); waiting != jobs_.end()) {
    // Its rows from the journal are not in its file yet.
    Job& rest = *waiting->second;
    const Status kept = rest.replaced.has_unwritten() ? rest.replaced.Write() : OkStatus();
    const Status written = kept.ok() ? rest.steps.WriteFrames(/*all=*/true) : kept;
    if (!written.ok()) return;  // tried again with the next steps
    jobs_.erase(waiting);
    dirty_.erase(hidden);
  }
  set_aside_.erase(aside);
  if (jobs_.contains(uid)) return;
  for (const std::string_view extension : kExtensions) {
    const std::string target = base::JoinPath(folder_, uid).append(extension);
    std::error_code error;
    if (fs::exists(target, error)) continue;
    fs::rename(base::JoinPath(folder_, hidden).append(extension), target, error);
  }
  log::Info("history: what was set aside is the job's again", {{"job_uid", uid}});
}

History::Job& History::Open(std::string_view job_uid) {
  const auto found = jobs_.find(job_uid);
  if (found != jobs_.end()) return *found->second;
  auto job = std::make_unique<Job>(base::JoinPath(folder_, job_uid));
  const Status loaded = job->steps.Load(/*repair=*/true);
  if (!loaded.ok()) log::Error("history: unreadable", {{"error", base::Message(loaded)}});
  return *jobs_.emplace(job_uid, std::move(job)).first->second;
}

bool History::Append(std::string_view job_uid, const v1::StepRecord& step) {
  const base::MutexLock lock(&mu_);
  Job& job = Open(job_uid);
  const JobHistory::Appended result = job.steps.Append(step);
  if (result == JobHistory::Appended::kNoRoom && num_lost_++ == 0) {
    log::Error("history: the disk has refused steps for so long that some are lost",
               {{"job_uid", job_uid}, {"step", step.step()}});
  }
  if (result != JobHistory::Appended::kNew) return false;
  job.closing = false;
  dirty_.emplace(job_uid);
  return true;
}

void History::AppendEval(std::string_view job_uid, const v1::EvalRecord& eval) {
  const base::MutexLock lock(&mu_);
  Open(job_uid).evals.Append(eval);
  dirty_.emplace(job_uid);
}

void History::AppendRun(std::string_view job_uid, const v1::EpochRun& run) {
  const base::MutexLock lock(&mu_);
  Open(job_uid).runs.Append(run);
  dirty_.emplace(job_uid);
}

History::Newest History::NewestOf(std::string_view job_uid) {
  const base::MutexLock lock(&mu_);
  const JobHistory& steps = Open(job_uid).steps;
  return {.epoch = steps.last_epoch(), .step = steps.last_step()};
}

void History::Close(std::string_view job_uid) {
  const base::MutexLock lock(&mu_);
  const auto job = jobs_.find(job_uid);
  if (job == jobs_.end()) return;
  job->second->closing = true;
  dirty_.emplace(job_uid);
}

void History::Erase(std::string_view job_uid) {
  const base::MutexLock lock(&mu_);
  const auto job = jobs_.find(job_uid);
  if (job != jobs_.end()) jobs_.erase(job);
  const auto dirty = dirty_.find(job_uid);
  if (dirty != dirty_.end()) dirty_.erase(dirty);
  std::error_code ignored;
  for (const std::string_view extension : kExtensions)
    fs::remove(base::JoinPath(folder_, job_uid).append(extension), ignored);
}

Status History::FlushJob(const std::string& uid, Job* job) {
  Status status = job->evals.has_unwritten() ? job->evals.Write() : OkStatus();
  if (job->runs.has_unwritten()) {
    const Status written = job->runs.Write();
    if (status.ok()) status = written;
  }
  // Before the steps that have replaced them.
  if (job->replaced.has_unwritten()) {
    const Status written = job->replaced.Write();
    if (status.ok()) status = written;
  }
  if (job->closing || job->steps.has_full_frame()) {
    const Status written = job->steps.WriteFrames(/*all=*/job->closing);
    // Where the job's file refuses the steps, the journal may still take them.
    if (!written.ok() && status.ok()) status = written;
  }
  if (job->steps.has_unjournaled()) journal_.Add(uid, job->steps.Unjournaled());
  return status;
}

Status History::FlushLocked() {
  RETURN_IF_ERROR(base::MakeDirs(folder_));
  Status status;
  for (const std::string& uid : dirty_) {
    const Status flushed = FlushJob(uid, jobs_.find(uid)->second.get());
    if (!flushed.ok()) status = flushed;
  }
  if (journal_.has_added()) RETURN_IF_ERROR(journal_.Write());
  for (const std::string& uid : dirty_) jobs_.find(uid)->second->steps.MarkJournaled();
  RETURN_IF_ERROR(status);
  for (const std::string& uid : dirty_) {
    const auto job = jobs_.find(uid);
    if (job->second->closing) jobs_.erase(job);
  }
  dirty_.clear();
  if (journal_.size_bytes() <= journal_limit_) return OkStatus();
  for (const auto& [uid, job] : jobs_) {
    if (!job->steps.Held().empty()) journal_.Add(uid, job->steps.Held());
  }
  RETURN_IF_ERROR(journal_.Rewrite());
  journal_limit_ = std::max(kJournalBytes, kJournalFactor * journal_.size_bytes());
  return OkStatus();
}

Status History::Flush() {
  const base::MutexLock lock(&mu_);
  if (dirty_.empty()) return OkStatus();
  const auto start = std::chrono::steady_clock::now();
  Status status = FlushLocked();
  if (told_) {
    told_(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  if (!status.ok()) {
    ++num_errors_;
    if (std::exchange(ok_, false)) {
      log::Error("history: steps cannot be written; workers keep them until they can be",
                 {{"error", base::Message(status)}});
    }
    return status;
  }
  if (!std::exchange(ok_, true)) log::Info("history: steps are written again");
  return status;
}

bool History::ok() const {
  const base::MutexLock lock(&mu_);
  return ok_;
}

bool History::has_unflushed() const {
  const base::MutexLock lock(&mu_);
  return !dirty_.empty();
}

template <class Read>
HistoryView History::WithJob(std::string_view job_uid, const Read& read) const {
  // `read` runs under the lock and returns the part that reads the disk without it.
  std::function<HistoryView()> rest;
  {
    const base::MutexLock lock(&mu_);
    const auto job = jobs_.find(job_uid);
    if (job != jobs_.end()) {
      const Job& open = *job->second;
      rest = read(open.steps, Unwritten{open.evals.unwritten(), open.runs.unwritten(),
                                        open.replaced.unwritten()});
    }
  }
  if (rest) return rest();
  // No steps arrive for this job, so its file is not changing.
  JobHistory history(base::JoinPath(folder_, job_uid) + ".steps");
  const Status loaded = history.Load(/*repair=*/false);
  if (!loaded.ok()) log::Error("history: unreadable", {{"error", base::Message(loaded)}});
  return read(history, Unwritten())();
}

HistoryView History::Query(std::string_view job_uid, const HistoryQuery& query) const {
  const int64_t points =
      std::min(query.points <= 0 ? kHistoryDefaultPoints : query.points, kHistoryMaxPoints);
  const std::string evals_path = base::JoinPath(folder_, job_uid) + ".evals";
  const std::string runs_path = base::JoinPath(folder_, job_uid) + ".runs";
  return WithJob(job_uid, [&](const JobHistory& job, Unwritten more) {
    const int64_t first = job.first_step();
    const int64_t last = job.last_step();
    HistoryRange range{.from_step = std::max(query.from_step, first),
                       .to_step = query.to_step <= 0 ? last : std::min(query.to_step, last),
                       .since_us = query.since_us};
    if (query.since_us > 0) range.from_step = std::max(range.from_step, job.StepAt(query.since_us));
    const int level = ChooseHistoryLevel(range.to_step - range.from_step + 1, points);
    const HistoryView head = HeadOf(job);
    return [=, &query, source = job.Level(level, range.from_step - 1), more = std::move(more)]() {
      HistoryView view = head;
      HistoryTable rows = ReadHistoryLevel(source, range, query.names, &view.bytes_read);
      const int64_t most = std::min(points, HistoryPointsThatFit(rows, points));
      view.rows = ThinHistory(std::move(rows), static_cast<size_t>(most));
      view.evals = ReadHistoryEvals(evals_path, more.evals,
                                    query.since_us > 0 ? range.from_step : query.from_step,
                                    query.to_step <= 0 ? kForever : query.to_step, query.samples);
      view.runs = ReadHistoryRuns(runs_path, more.runs);
      return view;
    };
  });
}

HistoryView History::Walk(std::string_view job_uid, const HistoryWalk& walk) const {
  const std::string evals_path = base::JoinPath(folder_, job_uid) + ".evals";
  const std::string runs_path = base::JoinPath(folder_, job_uid) + ".runs";
  return WithJob(job_uid, [&](const JobHistory& job, Unwritten more) {
    const int64_t last = job.last_step();
    HistoryRange range{
        .from_step = std::max({walk.from_step, walk.after_step + 1, job.first_step()}),
        .to_step = walk.to_step <= 0 ? last : std::min(walk.to_step, last),
        .since_us = walk.since_us,
        .limit = static_cast<size_t>(std::clamp(walk.limit, 1, kHistoryMaxPoints))};
    if (walk.since_us > 0) range.from_step = std::max(range.from_step, job.StepAt(walk.since_us));
    const HistoryView head = HeadOf(job);
    return [=, &walk, source = job.Level(0, range.from_step - 1), more = std::move(more)]() {
      HistoryView view = head;
      view.rows = ReadHistoryLevel(source, range, walk.names, &view.bytes_read);
      view.rows.Truncate(static_cast<size_t>(HistoryPointLimit(view.rows.columns.size(), 0)));
      const int64_t until = view.rows.empty() ? range.to_step : view.rows.steps.back();
      if (until < range.to_step) view.next_step = until;
      // On the last page also those that ran behind the last step that is known.
      const int64_t evals_to =
          view.next_step > 0 ? until : (walk.to_step <= 0 ? kForever : walk.to_step);
      // The first page starts where the range does; an evaluation may lie before its first step.
      view.evals = ReadHistoryEvals(
          evals_path, more.evals,
          std::max(range.since_us > 0 ? range.from_step : walk.from_step, walk.after_step + 1),
          evals_to);
      if (walk.after_step <= 0) view.runs = ReadHistoryRuns(runs_path, more.runs);
      return view;
    };
  });
}

HistoryView History::Steps(std::string_view job_uid, int64_t after_step, int64_t before_step,
                           size_t limit) const {
  const std::string evals_path = base::JoinPath(folder_, job_uid) + ".evals";
  return WithJob(job_uid, [&](const JobHistory& job, Unwritten more) {
    const HistoryRange range{
        .from_step = after_step + 1, .to_step = before_step - 1, .limit = limit};
    return [=, first = job.first_step(), last = job.last_step(), source = job.Level(0, after_step),
            more = std::move(more)]() {
      HistoryView view;
      view.first_step = first;
      view.last_step = last;
      view.rows = ReadHistoryLevel(source, range, {}, &view.bytes_read);
      const bool cut = view.rows.num_rows() == limit;
      view.evals = ReadHistoryEvals(evals_path, more.evals, range.from_step,
                                    cut ? view.rows.steps.back() : range.to_step);
      return view;
    };
  });
}

HistoryView History::Part(std::string_view job_uid, int level, const HistoryRange& range,
                          const std::vector<std::string>& names) const {
  const std::string evals_path = base::JoinPath(folder_, job_uid) + ".evals";
  const std::string replaced_path = base::JoinPath(folder_, job_uid) + ".replaced";
  return WithJob(job_uid, [&](const JobHistory& job, Unwritten more) {
    HistoryRange part = range;
    if (range.since_us > 0) part.from_step = std::max(part.from_step, job.StepAt(range.since_us));
    const HistoryView head = HeadOf(job);
    const bool is_own = range.replaced_of == 0;
    return [=, &names, pieces = is_own ? PlanPieces(job, level, part) : std::vector<HistoryPiece>(),
            more = std::move(more)]() {
      HistoryView view = head;
      if (!is_own) {
        view.rows = BucketsOf(ReadHistoryReplaced(replaced_path, more.replaced, part.replaced_of,
                                                  part.from_step, part.to_step, names),
                              level, part);
        return view;
      }
      view.rows = ReadPieces(pieces, level, names, &view.bytes_read);
      view.evals =
          ReadHistoryEvals(evals_path, more.evals, part.from_step, part.to_step, part.samples);
      return view;
    };
  });
}

size_t History::MemoryBytes() const {
  const base::MutexLock lock(&mu_);
  size_t bytes = 0;
  for (const auto& [uid, job] : jobs_) bytes += sizeof(Job) + job->steps.MemoryBytes();
  return bytes;
}

int64_t History::num_errors() const {
  const base::MutexLock lock(&mu_);
  return num_errors_;
}

int64_t History::num_lost_steps() const {
  const base::MutexLock lock(&mu_);
  return num_lost_;
}

}  // namespace mt::daemon
