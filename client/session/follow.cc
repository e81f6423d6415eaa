// Two threads read the job's and the metrics stream into a feed; the main thread takes what is new,
// prints it, and decides when following ends.
#include "client/session/follow.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <set>
#include <sys/ioctl.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "client/output/format.h"
#include "client/output/live_line.h"
#include "client/session/interrupt.h"
#include "common/base/mutex.h"
#include "common/base/plain_text.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTick{100};
constexpr std::chrono::seconds kPlainLineEvery{5};
// How long the coordinator may be unreachable before following ends; the job does not depend on it.
constexpr std::chrono::minutes kPatience{5};

bool IsFinal(const v1::Job& job) {
  return job.state() == v1::SUCCEEDED || job.state() == v1::FAILED || job.state() == v1::CANCELLED;
}

// What the two stream threads have received and the display has not shown yet. Thread-safe.
class Feed {
 public:
  explicit Feed(const FollowArgs& args) : args_(args) {}

  // The bodies of the two threads. They run until Stop and reconnect after failures.
  void RunWatch() {
    Run(&watch_stopper_, [this](const Api& api) {
      const v1::GetJobRequest request = MakeJobRequest(args_.options, args_.job_uid);
      return api.Watch(request, &watch_stopper_, [this](const v1::Job& job) {
        base::MutexLock lock(&mu_);
        job_ = std::make_unique<v1::Job>(job);
        lost_since_ = {};
        return !IsFinal(job);
      });
    });
  }
  void RunMetrics() {
    Run(&metrics_stopper_, [this](const Api& api) {
      v1::StreamMetricsRequest request;
      request.mutable_job()->set_uid(args_.job_uid);
      {
        base::MutexLock lock(&mu_);
        request.set_since_step(last_step_);
      }
      return api.StreamMetrics(request, &metrics_stopper_, [this](const v1::MetricsChunk& chunk) {
        base::MutexLock lock(&mu_);
        for (const v1::StepRecord& step : chunk.steps()) {
          last_step_ = step.step();
          steps_.push_back(step);
        }
        evals_.insert(evals_.end(), chunk.evals().begin(), chunk.evals().end());
        return true;
      });
    });
  }

  struct News {
    std::unique_ptr<v1::Job> job;  // null: none received yet
    std::vector<v1::StepRecord> steps;
    std::vector<v1::EvalRecord> evals;
    steady_clock::duration lost{};  // time since the coordinator was reached last; 0: connected
    Status error;                   // a failure that reconnecting cannot cure
  };
  News Take() {
    base::MutexLock lock(&mu_);
    News news;
    if (job_ != nullptr) news.job = std::make_unique<v1::Job>(*job_);
    news.steps.swap(steps_);
    news.evals.swap(evals_);
    if (lost_since_ != steady_clock::time_point()) news.lost = steady_clock::now() - lost_since_;
    news.error = error_;
    return news;
  }

  void Stop() {
    {
      base::MutexLock lock(&mu_);
      stopping_ = true;
      wake_.NotifyAll();
    }
    watch_stopper_.Stop();
    metrics_stopper_.Stop();
  }

 private:
  void Run(StreamStopper* stopper, const std::function<Status(const Api&)>& stream) {
    GlobalOptions shown = args_.options;
    shown.output = OutputFormat::kTable;  // whatever the verb prints, this goes to people
    while (!stopper->stopped()) {
      Status status = OkStatus();
      auto api = ConnectApi(shown);
      status = api.ok() ? stream(**api) : api.status();
      if (status.ok() || stopper->stopped()) return;
      base::MutexLock lock(&mu_);
      const bool transient = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
                             absl::IsResourceExhausted(status) || absl::IsCancelled(status);
      if (!transient) {
        if (error_.ok()) error_ = status;
        return;
      }
      if (lost_since_ == steady_clock::time_point()) lost_since_ = steady_clock::now();
      const auto until = steady_clock::now() + std::chrono::milliseconds(500);
      while (!stopping_ && wake_.WaitUntil(&mu_, until)) {
      }
    }
  }

  const FollowArgs& args_;
  StreamStopper watch_stopper_, metrics_stopper_;
  base::Mutex mu_;
  base::CondVar wake_;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::unique_ptr<v1::Job> job_ GUARDED_BY(mu_);
  std::vector<v1::StepRecord> steps_ GUARDED_BY(mu_);
  std::vector<v1::EvalRecord> evals_ GUARDED_BY(mu_);
  int64_t last_step_ GUARDED_BY(mu_) = 0;
  steady_clock::time_point lost_since_ GUARDED_BY(mu_);
  Status error_ GUARDED_BY(mu_);
};

// Prints the news. On a terminal the live line is redrawn in place; elsewhere a plain line appears
// every few seconds.
class Display {
 public:
  explicit Display(bool show_progress)
      : show_progress_(show_progress), terminal_(::isatty(STDOUT_FILENO) == 1) {}

  void Show(const Feed::News& news) {
    if (!show_progress_) return;
    ShowLost(news.lost > std::chrono::seconds(2));
    for (const v1::StepRecord& step : news.steps) Smooth(step);
    if (news.job != nullptr) ShowJob(*news.job);
    for (const v1::EvalRecord& eval : news.evals) ShowEval(eval);
    if (!news.steps.empty()) last_ = news.steps.back();
    if (news.job != nullptr && IsFinal(*news.job)) {
      // The job's final state may arrive before the last records of the metrics stream.
      if (news.job->has_last_eval()) ShowEval(news.job->last_eval());
      if (news.job->last_step().step() > last_.step()) last_ = news.job->last_step();
    }
    if (news.job != nullptr && last_.step() > 0) ShowLive(*news.job);
  }

  // Ends the live line, so that following text starts on its own line.
  void Finish(const v1::Job* job) {
    if (!show_progress_) return;
    if (!terminal_ && job != nullptr && last_.step() > shown_step_) {
      std::printf("%s\n", LiveLine(*job, last_, seconds_per_step_, 0).c_str());
    }
    if (live_) std::printf("\n");
    live_ = false;
    std::fflush(stdout);
  }

 private:
  void ShowCheckpoint(const v1::CheckpointInfo& saved) {
    if (saved.step() <= checkpoint_) return;
    checkpoint_ = saved.step();
    Line(fmt::format("checkpoint saved at step {} ({}, {:.1f} s)", checkpoint_,
                     FormatBytes(saved.bytes()), saved.seconds()));
  }

  void Line(const std::string& text) {
    if (live_) std::printf("\r\033[K");
    live_ = false;
    std::printf("%s\n", base::CleanLine(text).c_str());
    std::fflush(stdout);
  }

  void ShowLost(bool lost) {
    if (lost == lost_) return;
    lost_ = lost;
    Line(lost ? "coordinator unreachable; the job goes on without it, waiting for it to come back"
              : "coordinator is back");
  }

  void ShowJob(const v1::Job& job) {
    std::string state = StateText(job);
    const bool waiting = job.state() == v1::QUEUED && !job.message().empty();
    if (waiting) state += ": " + job.message();
    if (state != state_ && !IsFinal(job)) Line(state);
    state_ = state;
    for (const v1::Condition& c : job.conditions()) {
      if (c.type() != "Waiting" && conditions_.insert(c.type() + c.message()).second) {
        Line(c.type() + ": " + c.message());
      }
    }
    if (job.resumed_from_step() > 0 && !resumed_) {
      resumed_ = true;
      Line(fmt::format("resumed from the checkpoint of step {}", job.resumed_from_step()));
    }
    // Several checkpoints may have been saved between two messages.
    for (const v1::CheckpointInfo& saved : job.checkpoints()) ShowCheckpoint(saved);
    ShowCheckpoint(job.last_checkpoint());
    if (job.last_checkpoint_error() != save_error_) {
      save_error_ = job.last_checkpoint_error();
      if (!save_error_.empty()) Line("checkpoint FAILED (training goes on): " + save_error_);
    }
  }

  void ShowEval(const v1::EvalRecord& eval) {
    const std::string split = eval.split().empty() ? "valid" : eval.split();
    if (!evals_.insert(fmt::format("{}/{}/{}", split, eval.step(), eval.final())).second) return;
    Line(fmt::format("{} loss {:.4f} at step {} ({} tokens{})", split, eval.loss(), eval.step(),
                     FormatRate(static_cast<double>(eval.tokens())),
                     eval.final() ? ", whole split" : ""));
  }

  void Smooth(const v1::StepRecord& step) {
    constexpr double kKeep = 0.9;
    seconds_per_step_ = seconds_per_step_ == 0
                            ? step.step_seconds()
                            : kKeep * seconds_per_step_ + (1 - kKeep) * step.step_seconds();
  }

  void ShowLive(const v1::Job& job) {
    if (terminal_) {
      winsize size{};
      const int width =
          ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1 : 100;
      std::printf("\r%s\033[K", LiveLine(job, last_, seconds_per_step_, width).c_str());
      std::fflush(stdout);
      live_ = true;
      return;
    }
    const auto now = steady_clock::now();
    if (last_.step() == shown_step_ || now - shown_at_ < kPlainLineEvery) return;
    shown_at_ = now;
    shown_step_ = last_.step();
    Line(LiveLine(job, last_, seconds_per_step_, 0));
  }

  const bool show_progress_;
  const bool terminal_;
  bool live_ = false;
  bool lost_ = false;
  bool resumed_ = false;
  std::string state_, save_error_;
  std::set<std::string> conditions_, evals_;
  int64_t checkpoint_ = 0;
  double seconds_per_step_ = 0;
  v1::StepRecord last_;
  int64_t shown_step_ = 0;
  steady_clock::time_point shown_at_;
};

void PrintEnd(const v1::Job& job) {
  std::string line = fmt::format("job {} {}", job.name(), v1::JobState_Name(job.state()));
  if (!job.message().empty()) line += ": " + job.message();
  if (job.state() == v1::FAILED) {
    line += fmt::format(" (cause {}{})", v1::Cause_Name(job.cause()),
                        job.failed_rank() >= 0 ? fmt::format(", rank {}", job.failed_rank()) : "");
  }
  std::fprintf(stderr, "%s\n", base::CleanLine(line).c_str());
  for (const std::string& log_line : job.last_log_lines())
    std::fprintf(stderr, "  | %s\n", base::CleanLine(log_line).c_str());
}

bool HasTarget(const WaitTarget& until) { return until.state != 0 || until.checkpoint_step > 0; }

bool Reached(const v1::Job& job, const WaitTarget& until) {
  if (until.state != 0) return job.state() == until.state;
  return until.checkpoint_step > 0 && job.last_checkpoint().step() >= until.checkpoint_step;
}

// The exit code for a job that ended before the target was reached.
ExitCode MissedTarget(const v1::Job& job) {
  PrintEnd(job);
  std::fprintf(stderr, "mtctl: job %s ended before that\n", job.name().c_str());
  const ExitCode code = ExitCodeOf(job);
  return code == kExitJobFailed ? code : kExitError;
}

ExitCode FollowFeed(const FollowArgs& args, Feed* feed) {
  Display display(args.show_progress);
  const auto start = steady_clock::now();
  for (;;) {
    const Feed::News news = feed->Take();
    display.Show(news);
    if (news.job != nullptr && Reached(*news.job, args.until)) {
      display.Finish(news.job.get());
      return kExitOk;
    }
    if (news.job != nullptr && IsFinal(*news.job)) {
      display.Finish(news.job.get());
      if (HasTarget(args.until)) return MissedTarget(*news.job);
      PrintEnd(*news.job);
      return ExitCodeOf(*news.job);
    }
    if (!news.error.ok()) {
      display.Finish(nullptr);
      return Complain(news.error);
    }
    if (InterruptScope::Interrupted()) {
      display.Finish(nullptr);
      const std::string name = news.job != nullptr ? news.job->name() : args.job_uid;
      std::fprintf(stderr,
                   "mtctl: stopped following; the job goes on. To end it: mtctl cancel %s\n",
                   name.c_str());
      return kExitInterrupted;
    }
    if (args.limit && steady_clock::now() - start > *args.limit) {
      display.Finish(nullptr);
      std::fprintf(stderr, "mtctl: the job did not %s within %s; it goes on\n",
                   HasTarget(args.until) ? "get there" : "end",
                   FormatDuration(static_cast<double>(args.limit->count()) / 1e3).c_str());
      return kExitTimedOut;
    }
    if (news.lost > kPatience) {
      display.Finish(nullptr);
      return Complain(base::Unavailable(
          "the coordinator has been unreachable for {} minutes; the job may go on",
          kPatience.count()));
    }
    std::this_thread::sleep_for(kTick);
  }
}

}  // namespace

ExitCode Follow(const FollowArgs& args) {
  const InterruptScope scope;
  Feed feed(args);
  std::thread watch([&] { feed.RunWatch(); });
  std::thread metrics([&] {
    if (args.show_progress) feed.RunMetrics();
  });
  const ExitCode code = FollowFeed(args, &feed);
  feed.Stop();
  watch.join();
  metrics.join();
  return code;
}

}  // namespace mt::client
