// One job's gauges and counters, from its state, its newest step and its events.
#include "daemon/meters/job_meter.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>

#include <google/protobuf/descriptor.h>

#include "common/control/numbers.h"
#include "common/report/step_metrics.h"
#include "daemon/jobs/job_states.h"
#include "daemon/telemetry/step_feed.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/metric.pb.h"
#include "megatrain/v1/types.pb.h"

namespace mt::daemon {
namespace {

namespace v1 = megatrain::v1;

// T2: how long the series of an ended job remain.
constexpr std::chrono::minutes kShownAfterEnd{5};
// P1 for a job that saves, by what its steps alone tell.
constexpr double kSaveLimit = 1'800;
constexpr double kMicros = 1e6;

constexpr std::array kRankStates = {"live", "faulted", "unknown"};
constexpr std::array kBadput = {"queue", "start", "save", "detect", "rollback", "held"};
constexpr std::array kRestarts = {"user", "hang", "infra", "no_progress", "planned"};

// The cause under which time in this state counts as lost; "" where it is not lost or is counted by
// step.
std::string_view LostIn(v1::JobState state) {
  switch (state) {
    case v1::QUEUED:
      return "queue";
    case v1::ADMITTED:
    case v1::PREFLIGHT:
    case v1::STARTING:
      return "start";
    case v1::PAUSING:
    case v1::PAUSED_HELD:
      return "held";
    case v1::RELEASING:
    case v1::STOPPING:
      return "save";
    case v1::RECOVERING:
      return "detect";
    default:
      return "";
  }
}

std::string_view RankGroup(v1::RankState state) {
  switch (state) {
    case v1::FAULTED:
    case v1::FENCED:
      return "faulted";
    case v1::UNKNOWN:
      return "unknown";
    case v1::DONE:
    case v1::RANK_STATE_UNSPECIFIED:
      return "";
    default:
      return "live";
  }
}

// The precision as in a job file ("bf16"); "auto" until the first placement has decided it.
std::string PrecisionName(const v1::Training& training) {
  if (!training.has_precision()) return "auto";
  constexpr std::string_view kPrefix = "PRECISION_";
  std::string name = v1::Training::Precision_Name(training.precision()).substr(kPrefix.size());
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

// The last save of the job's run: the job's own, or what its newest start went on from.
struct LastSave {
  int64_t step = 0;
  int64_t time_us = 0;  // 0: none, or not known
};

// Where this start of the job has not saved yet, the age of its save counts from the start: before
// that nothing was trained that could be lost.
LastSave LastSaveOf(const v1::Job& job) {
  if (job.has_resumed_checkpoint()) {
    const v1::CheckpointInfo& base = job.resumed_checkpoint();
    return {.step = base.step(), .time_us = std::max(base.time_us(), job.ready_us())};
  }
  const v1::CheckpointInfo& saved = job.last_checkpoint();
  const bool of_another_run =
      !saved.run().empty() && !job.run().id().empty() && saved.run() != job.run().id();
  if (of_another_run) return {.step = 0, .time_us = job.ready_us()};
  return {.step = saved.step(), .time_us = saved.time_us()};
}

}  // namespace

JobFamilies::JobFamilies(metrics::Registry* registry) {
  const auto gauge = [registry](metrics::Family<metrics::Gauge>* family, std::string_view name,
                                std::string_view help) {
    *family = registry->AddGauge(name, help);
  };
  const auto counter = [registry](metrics::Family<metrics::Counter>* family, std::string_view name,
                                  std::string_view help) {
    *family = registry->AddCounter(name, help);
  };
  gauge(&state, "mt_job_state", "1 for the state that the job is in.");
  gauge(&info, "mt_job_info", "What the job is; always 1.");
  gauge(&run_info, "mt_job_run_info", "The run that the job trains; always 1.");
  gauge(&ranks, "mt_job_ranks", "Ranks of the current epoch.");
  gauge(&slots, "mt_job_slots", "Slots that the job asks for.");
  gauge(&epoch, "mt_job_epoch",
        "Epoch: its term times 2^20, plus the count of the placement in the term.");
  gauge(&step, "mt_job_step", "Last step done.");
  gauge(&total_steps, "mt_job_total_steps", "Run length in steps.");
  gauge(&last_step_time, "mt_job_last_step_timestamp_seconds", "Last sign of progress.");
  gauge(&step_limit, "mt_job_step_limit_seconds", "Longest time without a step that is in order.");
  for (const report::StepMetric& metric : report::StepMetrics()) {
    if (!metric.declared().has_gauge()) continue;
    const v1::Metric::Gauge& declared = metric.declared().gauge();
    last_step.emplace_back(&metric, registry->AddGauge(declared.name(), declared.help()));
  }
  gauge(&validation_loss, "mt_validation_loss", "Loss of the last evaluation, in nats.");
  gauge(&validation_perplexity, "mt_validation_perplexity", "Perplexity of the last evaluation.");
  gauge(&validation_bits_per_byte, "mt_validation_bpb",
        "Loss of the last evaluation, in bits per byte of text.");
  gauge(&save_seconds, "mt_checkpoint_duration_seconds", "Duration of the last complete save.");
  gauge(&save_bytes, "mt_checkpoint_bytes", "Size of the last complete checkpoint.");
  gauge(&save_step, "mt_checkpoint_last_success_step",
        "Step of the run's last complete checkpoint: saved, or gone on from.");
  gauge(&save_time, "mt_checkpoint_last_success_timestamp_seconds",
        "When the last checkpoint was complete; until a start has saved, when it went on from it.");
  gauge(&saving, "mt_checkpoint_pending", "1 while a save that was asked for is under way.");
  gauge(&save_interval_steps, "mt_checkpoint_interval_steps", "Steps between saves.");
  gauge(&save_interval_seconds, "mt_checkpoint_interval_seconds", "Time between saves.");
  gauge(&second_lag, "mt_checkpoint_second_lag_steps",
        "Steps by which the second directory's newest copy is behind the last checkpoint.");
  counter(&skipped, "mt_skipped_steps_total", "Steps without an update.");
  counter(&tokens, "mt_job_tokens_total", "Tokens trained.");
  counter(&flops, "mt_model_flops_total", "Model FLOP, attention counted as causal.");
  counter(&restarts, "mt_job_restarts_total", "New epochs after the first step.");
  counter(&goodput, "mt_job_goodput_seconds_total", "Time in steps that moved the job forward.");
  counter(&badput, "mt_job_badput_seconds_total", "Time lost, by cause.");
  counter(&save_stall, "mt_checkpoint_stall_seconds_total", "Training stood still for saves.");
  counter(&save_failures, "mt_checkpoint_failures_total", "Saves that failed.");
}

JobMeter::JobMeter(const JobFamilies* families, const v1::Job& job, const Moment& moment)
    : families_(families),
      series_(metrics::Labels{{"mt_job", job.name()}, {"mt_namespace", job.namespace_()}}),
      info_(metrics::Labels{{"mt_job", job.name()}, {"mt_namespace", job.namespace_()}}),
      run_info_(metrics::Labels{{"mt_job", job.name()}, {"mt_namespace", job.namespace_()}}),
      last_state_(job.state()),
      last_epoch_(job.epoch()),
      running_since_us_(job.state() == v1::RUNNING ? job.started_us() : 0),
      last_save_us_(job.last_checkpoint().time_us()),
      last_update_(moment.now) {
  const auto* states = v1::JobState_descriptor();
  for (int i = 0; i < states->value_count(); ++i) {
    const auto* value = states->value(i);
    if (value->number() == v1::JOB_STATE_UNSPECIFIED) continue;
    states_[value->number()] = series_.Add(families->state, {{"state", value->name()}});
  }
  for (const char* state : kRankStates) {
    ranks_[state] = series_.Add(families->ranks, {{"state", state}});
  }
  for (const char* cause : kBadput) {
    badput_[cause] = series_.Add(families->badput, {{"cause", cause}});
  }
  for (const char* cause : kRestarts) {
    restarts_[cause] = series_.Add(families->restarts, {{"cause", cause}});
  }
  ShowInfo(job);
  ShowRun(job);
  slots_ = series_.Add(families->slots);
  epoch_ = series_.Add(families->epoch);
  step_ = series_.Add(families->step);
  total_steps_ = series_.Add(families->total_steps);
  last_step_time_ = series_.Add(families->last_step_time);
  step_limit_ = series_.Add(families->step_limit);
  save_step_ = series_.Add(families->save_step);
  saving_ = series_.Add(families->saving);
  skipped_ = series_.Add(families->skipped, {{"reason", "overflow"}});
  tokens_ = series_.Add(families->tokens);
  flops_ = series_.Add(families->flops);
  goodput_ = series_.Add(families->goodput);
  save_stall_ = series_.Add(families->save_stall);
  save_failures_ = series_.Add(families->save_failures);
}

void JobMeter::Show(std::string_view name, const metrics::Family<metrics::Gauge>& family,
                    double value) {
  auto found = shown_.find(name);
  if (found == shown_.end()) found = shown_.emplace(name, series_.Add(family)).first;
  found->second.Set(value);
}

void JobMeter::ShowInfo(const v1::Job& job) {
  const std::string precision = PrecisionName(job.spec().training());
  if (precision == shown_precision_) return;
  shown_precision_ = precision;
  info_.Remove();
  info_
      .Add(families_->info,
           {{"uid", job.uid()}, {"preset", job.spec().model().preset()}, {"precision", precision}})
      .Set(1);
}

void JobMeter::ShowRun(const v1::Job& job) {
  if (job.run().id() == shown_run_) return;
  shown_run_ = job.run().id();
  run_info_.Remove();
  if (!shown_run_.empty()) run_info_.Add(families_->run_info, {{"run", shown_run_}}).Set(1);
}

void JobMeter::CountTime(const Moment& moment) {
  const double seconds = std::chrono::duration<double>(moment.now - last_update_).count();
  last_update_ = moment.now;
  const auto lost = badput_.find(LostIn(last_state_));
  if (lost != badput_.end()) lost->second.Add(seconds);
}

void JobMeter::ShowState(const v1::Job& job, const Moment& moment) {
  for (auto& [state, gauge] : states_) gauge.Set(state == job.state() ? 1 : 0);
  std::map<std::string_view, int> counts;
  for (const v1::RankStatus& rank : job.ranks()) ++counts[RankGroup(rank.state())];
  for (auto& [state, gauge] : ranks_) gauge.Set(counts[state]);
  was_released_ |= job.state() == v1::PAUSED_RELEASED;
  if (job.epoch() != last_epoch_ && job.has_first_step()) {
    restarts_.find(was_released_ ? "user" : "infra")->second.Add();
    was_released_ = false;
  }
  if (job.state() != last_state_ && job.state() == v1::RUNNING) running_since_us_ = moment.wall_us;
  last_epoch_ = job.epoch();
  last_state_ = job.state();
  slots_.Set(job.slots());
  epoch_.Set(static_cast<double>(job.epoch()));
  if (IsFinal(job.state()) && over_at_ == base::MonotonicTime::max()) {
    over_at_ = moment.now + kShownAfterEnd;
  }
}

void JobMeter::ShowSteps(const v1::Job& job, const StepFeed* feed, bool saving) {
  const v1::StepRecord& last = job.last_step();
  // Of a job that goes on with a run and has done no step yet, the run's.
  step_.Set(static_cast<double>(job.has_last_step() ? last.step() : job.resumed_from_step()));
  total_steps_.Set(static_cast<double>(job.total_steps()));
  last_step_time_.Set(static_cast<double>(std::max(last.time_us(), running_since_us_)) / kMicros);
  const auto seconds = [](control::seconds time) {
    return std::chrono::duration<double>(time).count();
  };
  double limit = seconds(control::kFirstStepLimit);
  if (feed != nullptr && last.epoch() == job.epoch() &&
      feed->totals().steps >= control::kFirstSteps) {
    limit =
        std::max(control::kStepLimitFactor * feed->StepSecondsP99(), seconds(control::kStepLimit));
  }
  step_limit_.Set(saving ? std::max(limit, kSaveLimit) : limit);
  if (job.has_last_eval()) ShowEvaluation(job.last_eval());
  if (feed != nullptr) {
    const StepTotals& totals = feed->totals();
    skipped_.RaiseTo(static_cast<double>(totals.skipped));
    tokens_.RaiseTo(totals.tokens);
    flops_.RaiseTo(totals.model_flops);
    goodput_.RaiseTo(totals.forward_seconds);
    badput_.find("rollback")->second.RaiseTo(totals.again_seconds);
  }
  if (job.has_last_step()) ShowLastStep(last);
}

void JobMeter::ShowEvaluation(const v1::EvalRecord& eval) {
  // What is not known of this evaluation is not that of the one before.
  const auto show = [&](std::string_view name, const metrics::Family<metrics::Gauge>& family,
                        bool known, double value) {
    if (known || shown_.contains(name))
      Show(name, family, known ? value : std::numeric_limits<double>::quiet_NaN());
  };
  Show("validation_loss", families_->validation_loss, eval.loss());
  show("validation_perplexity", families_->validation_perplexity, eval.has_perplexity(),
       eval.perplexity());
  show("validation_bits_per_byte", families_->validation_bits_per_byte, eval.has_bits_per_byte(),
       eval.bits_per_byte());
}

void JobMeter::ShowLastStep(const v1::StepRecord& step) {
  for (const auto& [metric, family] : families_->last_step) {
    const v1::Metric::Gauge& declared = metric->declared().gauge();
    if (!metric->IsReported(step) || (declared.per_second() && step.step_seconds() <= 0)) continue;
    const double value = metric->Value(step);
    Show(declared.name(), family, declared.per_second() ? value / step.step_seconds() : value);
  }
}

void JobMeter::ShowSaves(const v1::Job& job, bool saving) {
  saving_.Set(saving ? 1 : 0);
  const auto& plan = job.spec().checkpoint();
  if (plan.every_iters() > 0) {
    Show("interval_steps", families_->save_interval_steps, static_cast<double>(plan.every_iters()));
  }
  if (plan.every() > 0) {
    Show("interval_seconds", families_->save_interval_seconds,
         static_cast<double>(plan.every()) / 1e3);
  }
  const LastSave last = LastSaveOf(job);
  save_step_.Set(static_cast<double>(last.step));
  if (last.time_us > 0)
    Show("save_time", families_->save_time, static_cast<double>(last.time_us) / kMicros);
  if (!job.has_last_checkpoint()) return;
  const v1::CheckpointInfo& save = job.last_checkpoint();
  Show("save_seconds", families_->save_seconds, save.seconds());
  Show("save_bytes", families_->save_bytes, static_cast<double>(save.bytes()));
  if (!job.spec().checkpoint().second().empty()) {
    Show("second_lag", families_->second_lag,
         static_cast<double>(save.step() - job.second_copy().step()));
  }
  if (save.time_us() == last_save_us_) return;
  last_save_us_ = save.time_us();
  save_stall_.Add(save.stall_seconds());
  badput_.find("save")->second.Add(save.stall_seconds());
}

void JobMeter::Update(const v1::Job& job, const StepFeed* feed, bool saving, const Moment& moment) {
  CountTime(moment);
  ShowInfo(job);
  ShowRun(job);
  ShowState(job, moment);
  ShowSteps(job, feed, saving);
  ShowSaves(job, saving);
}

void JobMeter::OnEvent(const v1::Event& event) {
  if (event.type() == "CheckpointFailed") save_failures_.Add();
}

}  // namespace mt::daemon
