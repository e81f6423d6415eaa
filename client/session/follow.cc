// The main thread takes what the feed has, lets the display show it, and decides when following
// ends.
#include "client/session/follow.h"

#include <cstdio>
#include <thread>

#include "client/output/format.h"
#include "client/session/follow_feed.h"
#include "client/session/interrupt.h"
#include "common/base/plain_text.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFollowTick{100};
// How long the coordinator may be unreachable before following ends; the job does not depend on it.
constexpr std::chrono::minutes kPatience{5};
// Steps before the newest one that a job which was described already is followed from: enough for a
// step time.
constexpr int64_t kStepsBefore = 20;

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

// Ctrl-C ends the watching alone.
ExitCode SayItRunsOn(const FollowArgs& args, const v1::Job* job) {
  const v1::Job* const known = job != nullptr ? job : args.told;
  const std::string name = base::CleanLine(known != nullptr ? known->name() : args.job_uid);
  const std::string place = PlaceFlags(args.options);
  std::fprintf(stderr,
               "mtctl: stopped following; the job runs on. Follow it again: mtctl follow %s%s; end "
               "it: mtctl cancel %s%s\n",
               name.c_str(), place.c_str(), name.c_str(), place.c_str());
  return kExitInterrupted;
}

ExitCode FollowToEnd(const FollowArgs& args, FollowFeed* feed) {
  FollowDisplay display(args.show, args.samples);
  if (args.told != nullptr) display.SetTold(*args.told);
  const auto start = steady_clock::now();
  for (;;) {
    const FollowFeed::News news = feed->Take();
    display.Show(news);
    if (news.job != nullptr && Reached(*news.job, args.until)) {
      display.Finish(news.job.get());
      return kExitOk;
    }
    if (news.job != nullptr && HasEnded(*news.job)) {
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
      return SayItRunsOn(args, news.job.get());
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
    std::this_thread::sleep_for(kFollowTick);
  }
}

}  // namespace

ExitCode Follow(const FollowArgs& args) {
  const InterruptScope scope;
  const int64_t newest = args.told == nullptr ? 0 : args.told->last_step().step();
  FollowFeed feed(args.options, args.job_uid, std::max<int64_t>(0, newest - kStepsBefore));
  std::thread watch([&] { feed.RunWatch(); });
  std::thread metrics([&] {
    if (args.show == FollowShow::kAll) feed.RunMetrics();
  });
  const ExitCode code = FollowToEnd(args, &feed);
  feed.Stop();
  watch.join();
  metrics.join();
  return code;
}

ExitCode FollowThenPrint(FollowArgs args, const Api& api) {
  if (IsTable(args.options.output)) return Follow(args);
  args.show = FollowShow::kNothing;
  const ExitCode code = Follow(args);
  if (code == kExitInterrupted || code == kExitConnection) return code;
  v1::GetJobRequest request;
  request.mutable_job()->set_uid(args.job_uid);
  const auto job = api.GetJob(request);
  if (!job.ok()) return Complain(job.status());
  const ExitCode printed = Print({.message = &*job, .names = {job->name()}}, args.options);
  return printed != kExitOk ? printed : code;
}

}  // namespace mt::client
