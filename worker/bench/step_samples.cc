// FLOP counts come from common/spec; rates are per median step, so that one disturbed step does not
// change them.
#include "worker/bench/step_samples.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "common/base/check.h"
#include "common/spec/derived.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/types.pb.h"

namespace mt::bench {

namespace v1 = megatrain::v1;

double Quantile(std::vector<double> samples, double share) {
  CHECK(!samples.empty() && share > 0 && share <= 1);
  const auto count = static_cast<double>(samples.size());
  const auto rank = static_cast<size_t>(std::ceil(share * count));
  const auto at = samples.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(rank, 1) - 1);
  std::nth_element(samples.begin(), at, samples.end());
  return *at;
}

double Median(std::vector<double> samples) {
  CHECK(!samples.empty());
  std::sort(samples.begin(), samples.end());
  const size_t middle = samples.size() / 2;
  if (samples.size() % 2 == 1) return samples[middle];
  return (samples[middle - 1] + samples[middle]) / 2;
}

StepSamples::StepSamples() = default;
StepSamples::~StepSamples() = default;

bool StepSamples::empty() const { return records_.empty(); }

void StepSamples::Add(const v1::StepRecord& record, bool measured) {
  if (measured) records_.push_back(record);
  if (record.step() < 2) return;
  if (least_launch_seconds_ == 0 || record.launch_seconds() < least_launch_seconds_)
    least_launch_seconds_ = record.launch_seconds();
}

void StepSamples::FillTimes(v1::BenchReport* report) const {
  std::vector<double> seconds;
  double sum = 0;
  for (const v1::StepRecord& record : records_) {
    seconds.push_back(record.step_seconds());
    sum += record.step_seconds();
  }
  report->set_steps(static_cast<int64_t>(seconds.size()));
  report->set_median_step_seconds(Median(seconds));
  constexpr double kP95 = 0.95;
  report->set_p95_step_seconds(Quantile(seconds, kP95));
  report->set_min_step_seconds(*std::min_element(seconds.begin(), seconds.end()));
  report->set_max_step_seconds(*std::max_element(seconds.begin(), seconds.end()));
  report->set_launch_seconds(least_launch_seconds_);
  report->set_mean_step_seconds(sum / static_cast<double>(seconds.size()));
}

void StepSamples::FillMeans(v1::BenchReport* report) const {
  const auto count = static_cast<double>(records_.size());
  double bubble = 0;
  for (const v1::StepRecord& record : records_) {
    for (const auto& [phase, seconds] : record.phase_seconds())
      (*report->mutable_phase_seconds())[phase] += seconds;
    bubble += record.bubble();
    report->set_host_memory_bytes(
        std::max(report->host_memory_bytes(), record.host_memory_bytes()));
  }
  report->set_bubble(bubble / count);
  for (auto& [phase, seconds] : *report->mutable_phase_seconds()) seconds /= count;
  *report->mutable_memory_bytes() = records_.back().memory_bytes();
}

void StepSamples::Fill(const v1::JobSpec& job, v1::BenchReport* report) const {
  CHECK(!records_.empty());
  FillTimes(report);
  FillMeans(report);
  const auto slots = static_cast<double>(spec::WorldSize(job));
  const double seconds = report->median_step_seconds();
  report->set_precision(v1::Training::Precision_Name(job.training().precision()).substr(10));
  report->set_slots(spec::WorldSize(job));
  report->set_parameters(spec::ParameterCount(job.model()));
  report->set_warmup_steps(job.bench().warmup());
  report->set_tokens_per_step(spec::TokensPerStep(job));
  report->set_tokens_per_second(static_cast<double>(spec::TokensPerStep(job)) / seconds);
  report->set_model_flops(spec::ModelFlopsPerStep(job));
  report->set_model_flops_full(spec::FullFlopsPerStep(job));
  report->set_megatron_flops(spec::MegatronFlopsPerStep(job));
  const double per_slot = 1e-12 / seconds / slots;
  report->set_tflops_per_slot(report->model_flops() * per_slot);
  report->set_tflops_per_slot_full(report->model_flops_full() * per_slot);
  report->set_megatron_tflops_per_slot(report->megatron_flops() * per_slot);
  report->set_first_loss(records_.front().loss());
  report->set_last_loss(records_.back().loss());
}

}  // namespace mt::bench
