// Each thing is said once: what was shown is remembered by state, condition, evaluation and step.
#include "client/session/follow_display.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>

#include "client/output/activity_text.h"
#include "client/output/format.h"
#include "client/output/live_line.h"
#include "client/output/metric_text.h"
#include "common/base/plain_text.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kPlainLineEvery{5};
// The same for what is waited for, which changes little.
constexpr std::chrono::seconds kPlainDoingEvery{30};
constexpr int kUnknownWidth = 100;

double SecondsSince(steady_clock::time_point then) {
  return std::chrono::duration<double>(steady_clock::now() - then).count();
}

// A terminal on which a line can be drawn again.
bool CanRedraw() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && (term == nullptr || std::string_view(term) != "dumb");
}

// What fits into a line without wrapping.
int LiveWidth() {
  winsize size{};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return known ? size.ws_col - 1 : kUnknownWidth;
}

std::string EvalKey(const v1::EvalRecord& eval) {
  const std::string split = eval.split().empty() ? "valid" : eval.split();
  return fmt::format("{}/{}/{}", split, eval.step(), eval.final());
}

// One that has trained and waits for something: nobody knows when it goes on, a script neither.
bool HasStopped(const v1::Job& job) {
  return job.state() == v1::QUEUED && !job.message().empty() && job.last_step().step() > 0;
}

std::string StateLine(const v1::Job& job) {
  std::string state = StateText(job);
  const bool waiting = job.state() == v1::QUEUED && !job.message().empty();
  return waiting ? state + ": " + job.message() : state;
}

}  // namespace

FollowDisplay::FollowDisplay(FollowShow show, bool samples)
    : show_(show),
      samples_(samples),
      terminal_(CanRedraw()),
      last_(std::make_unique<v1::StepRecord>()) {}

FollowDisplay::~FollowDisplay() = default;

void FollowDisplay::SetTold(const v1::Job& job) {
  state_ = StateLine(job);
  state_since_ = steady_clock::now();
  for (const v1::Condition& c : job.conditions()) conditions_.insert(c.type() + c.message());
  resumed_ = job.resumed_from_step() > 0;
  for (const v1::CheckpointInfo& saved : job.checkpoints())
    checkpoint_ = std::max(checkpoint_, saved.step());
  checkpoint_ = std::max(checkpoint_, job.last_checkpoint().step());
  save_error_ = job.last_checkpoint_error();
  if (job.has_last_eval()) evals_.insert(EvalKey(job.last_eval()));
  *last_ = job.last_step();
}

void FollowDisplay::Show(const FollowFeed::News& news) {
  if (show_ == FollowShow::kNothing || (news.job == nullptr && news.lost.count() == 0)) return;
  if (show_ == FollowShow::kStates) {
    if (news.job != nullptr) ShowState(*news.job);
    return;
  }
  ShowLost(news.lost > std::chrono::seconds(2));
  for (const v1::StepRecord& step : news.metrics->steps()) Smooth(step);
  if (news.job != nullptr) ShowJob(*news.job);
  for (const v1::EvalRecord& eval : news.metrics->evals()) ShowEval(eval);
  if (news.metrics->steps_size() > 0) *last_ = *news.metrics->steps().rbegin();
  if (news.job == nullptr) return;
  if (HasEnded(*news.job)) {
    // The job's final state may arrive before the last records of the metrics stream.
    if (news.job->has_last_eval()) ShowEval(news.job->last_eval());
    if (news.job->last_step().step() > last_->step()) *last_ = news.job->last_step();
  }
  ShowLive(*news.job, Doing(news));
}

void FollowDisplay::Finish(const v1::Job* job) {
  if (show_ != FollowShow::kAll) return;
  if (!terminal_ && job != nullptr && last_->step() > shown_step_) {
    std::printf("%s\n", LiveLine(*job, *last_, seconds_per_step_, "", 0).c_str());
  }
  if (!live_.empty()) std::printf("\n");
  live_.clear();
  std::fflush(stdout);
}

void FollowDisplay::ShowCheckpoint(int64_t step, int64_t bytes, double seconds) {
  if (step <= checkpoint_) return;
  checkpoint_ = step;
  Line(
      fmt::format("checkpoint saved at step {} ({}, {:.1f} s)", step, FormatBytes(bytes), seconds));
}

void FollowDisplay::Line(const std::string& text) {
  if (!live_.empty()) std::printf("\r\033[K");
  live_.clear();
  std::printf("%s\n", base::CleanLine(text).c_str());
  std::fflush(stdout);
}

void FollowDisplay::ShowLost(bool lost) {
  if (lost == lost_) return;
  lost_ = lost;
  Line(lost ? "coordinator unreachable; the job goes on without it, waiting for it to come back"
            : "coordinator is back");
}

void FollowDisplay::ShowState(const v1::Job& job) {
  const std::string state = StateLine(job);
  if (state == state_) return;
  state_ = state;
  state_since_ = steady_clock::now();
  if (HasEnded(job)) return;
  if (show_ == FollowShow::kAll) return Line(state);
  if (::isatty(STDERR_FILENO) == 0) {
    // Each try to go on comes by the same state again.
    if (!HasStopped(job) || stopped_ == state) return;
    stopped_ = state;
  }
  std::fprintf(stderr, "%s\n", base::CleanLine(state).c_str());
}

void FollowDisplay::ShowJob(const v1::Job& job) {
  ShowState(job);
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
  for (const v1::CheckpointInfo& saved : job.checkpoints())
    ShowCheckpoint(saved.step(), saved.bytes(), saved.seconds());
  const v1::CheckpointInfo& last = job.last_checkpoint();
  ShowCheckpoint(last.step(), last.bytes(), last.seconds());
  if (job.last_checkpoint_error() != save_error_) {
    save_error_ = job.last_checkpoint_error();
    if (!save_error_.empty()) Line("checkpoint FAILED (training goes on): " + save_error_);
  }
}

void FollowDisplay::ShowEval(const v1::EvalRecord& eval) {
  if (!evals_.insert(EvalKey(eval)).second) return;
  Line(fmt::format("{} loss {:.4f} at step {} ({} tokens{}{})",
                   eval.split().empty() ? "valid" : eval.split(), eval.loss(), eval.step(),
                   FormatRate(static_cast<double>(eval.tokens())),
                   eval.final() ? ", whole split" : "", LossUnitsText(eval)));
  if (!samples_ || eval.samples().empty()) return;
  if (!live_.empty()) std::printf("\r\033[K");
  live_.clear();
  std::printf("%s", SamplesText(eval).c_str());
  std::fflush(stdout);
}

void FollowDisplay::Smooth(const v1::StepRecord& step) {
  constexpr double kKeep = 0.9;
  seconds_per_step_ = seconds_per_step_ == 0
                          ? step.step_seconds()
                          : kKeep * seconds_per_step_ + (1 - kKeep) * step.step_seconds();
}

// What it does besides steps; before the first step at least that it is waited for.
std::string FollowDisplay::Doing(const FollowFeed::News& news) {
  const v1::Job& job = *news.job;
  if (HasEnded(job)) return "";
  std::string text = ActivityText(job, SecondsSince(news.activity_at));
  const bool placed = job.state() == v1::STARTING || job.state() == v1::RUNNING;
  if (!text.empty() || last_->step() > 0 || !placed) return text;
  return "waiting for the first step, " + FormatDuration(SecondsSince(state_since_));
}

void FollowDisplay::ShowLive(const v1::Job& job, const std::string& doing) {
  if (!terminal_) return ShowPlain(job, doing);
  const int width = LiveWidth();
  std::string line = doing;
  if (last_->step() > 0) line = LiveLine(job, *last_, seconds_per_step_, doing, width);
  line = base::CleanLine(line);
  if (line == live_) return;
  // Nothing is cut in the middle: a line without room is not drawn.
  if (DisplayWidth(line) > static_cast<size_t>(width)) line.clear();
  std::printf("\r%s\033[K", line.c_str());
  std::fflush(stdout);
  live_ = line;
}

void FollowDisplay::ShowPlain(const v1::Job& job, const std::string& doing) {
  const auto now = steady_clock::now();
  const bool stepped = last_->step() != shown_step_;
  if (stepped && now - shown_at_ >= kPlainLineEvery) {
    shown_at_ = now;
    shown_step_ = last_->step();
    return Line(LiveLine(job, *last_, seconds_per_step_, "", 0));
  }
  const int kind = job.activity().kind();
  const bool first = last_->step() == 0 && kind != doing_kind_;
  if (stepped || doing.empty() || kind == v1::Activity::NONE) return;
  if (!first && now - shown_at_ < kPlainDoingEvery) return;
  shown_at_ = now;
  doing_kind_ = kind;
  Line(doing);
}

}  // namespace mt::client
