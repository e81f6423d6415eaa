// Which events start and stop logging and gauge, and how the report is completed after the last
// step.
#include "worker/bench/bench_run.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/report/chrome_trace.h"
#include "common/spec/derived.h"
#include "kernels/replay/logging_backend.h"
#include "kernels/replay/replay.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/trace.pb.h"
#include "megatrain/v1/types.pb.h"
#include "worker/bench/axis_times.h"
#include "worker/bench/bubble.h"
#include "worker/bench/device_rates.h"
#include "worker/bench/host_wait.h"
#include "worker/trace/gather_traces.h"

namespace mt::bench {
namespace {

namespace v1 = megatrain::v1;

// Steps that are traced, few beside those whose median is reported.
constexpr int64_t kTracedSteps = 5;

// How many spans of communication a rank had room for, where some found none.
int64_t MostSpans(const v1::JobTrace& traces) {
  int64_t most = 0;
  for (const v1::RankTrace& rank : traces.ranks()) {
    int64_t spans = 0;
    for (const v1::TraceStream& stream : rank.streams())
      spans += stream.calls() > 0 ? stream.label_size() : 0;
    most = std::max(most, spans);
  }
  return most;
}

kernels::DType TypeOf(v1::Training::Precision precision) {
  switch (precision) {
    case v1::Training::PRECISION_BF16:
      return kernels::DType::kBf16;
    case v1::Training::PRECISION_FP16:
      return kernels::DType::kF16;
    case v1::Training::PRECISION_FP64:
      return kernels::DType::kF64;
    default:
      return kernels::DType::kF32;
  }
}

void FillHostWait(const v1::JobTrace* traces, v1::BenchReport* report) {
  const std::optional<HostWait> wait = traces == nullptr ? std::nullopt : LargestHostWait(*traces);
  if (!wait) return;
  report->set_host_wait(wait->share);
  report->set_host_wait_rank(wait->rank);
}

}  // namespace

BenchRun::BenchRun(const Args& args) : args_(args), log_(&args.backend->device()) {
  if (!measures()) return;
  if (args_.job->bench().kernels())
    logging_ = kernels::replay::MakeLoggingBackend(args_.backend, &log_);
  if (args_.backend->device().kind() != kernels::DeviceKind::kCuda) return;
  auto gauge = DeviceGauge::Create(args_.backend->device().Uuid());
  if (gauge.ok()) {
    gauge_ = std::move(gauge).value();
  } else {
    log::Warn("no clocks and no power in the report", {{"why", base::Message(gauge.status())}});
  }
}

BenchRun::~BenchRun() = default;

kernels::Backend* BenchRun::backend() {
  return logging_ != nullptr ? logging_.get() : args_.backend;
}

void BenchRun::OnState(train::TrainState state, int64_t step) {
  // kExiting is held back until the measurements after the last step are done.
  if (state == train::TrainState::kExiting) {
    exiting_ = true;
    last_step_ = step;
    return;
  }
  if (state == train::TrainState::kTraining && logging_ != nullptr && step == 0) log_.Start();
  args_.next->OnState(state, step);
}

// Called once a step's work is enqueued, when all its calls have been made.
void BenchRun::OnProgress(int64_t step) {
  if (logging_ != nullptr && step == 1) log_.Stop();
  if (gauge_ != nullptr && step >= std::max<int64_t>(1, args_.job->bench().warmup()))
    gauge_->Start();
  args_.next->OnProgress(step);
}

void BenchRun::OnStep(const v1::StepRecord& record) {
  samples_.Add(record, /*measured=*/record.step() > args_.job->bench().warmup());
  args_.next->OnStep(record);
}

// Not the last step: no forward follows that hides its gathers.
trace::TraceSteps BenchRun::steps_to_trace() const {
  if (spec::WorldSize(*args_.job) == 1 && args_.trace_file.empty() &&
      !args_.backend->device().Enqueues()) {
    return {};
  }
  const v1::Bench& bench = args_.job->bench();
  return {.first = bench.warmup() + 1,
          .last = bench.warmup() + std::clamp<int64_t>(bench.steps() - 1, 1, kTracedSteps),
          .every_call = !args_.trace_file.empty()};
}

void BenchRun::OnTrace(const v1::RankTrace& trace) {
  mine_ = std::make_unique<v1::RankTrace>(trace);
}

Status BenchRun::GatherTraces() {
  if (mine_ == nullptr) return OkStatus();
  auto traces = std::make_unique<v1::JobTrace>();
  const bool all = spec::WorldSize(*args_.job) <= trace::kMostTracedRanks;
  if (!all && measures()) {
    log::Warn("communication in the report is rank 0's alone",
              {{"ranks", spec::WorldSize(*args_.job)}, {"most", trace::kMostTracedRanks}});
  }
  const auto stream = args_.backend->device().CreateStream(kernels::StreamPriority::kLow);
  RETURN_IF_ERROR(trace::GatherTraces(all ? args_.world : nullptr, stream.get(),
                                      base::Clock::Real(), *mine_, traces.get()));
  if (measures()) traces_ = std::move(traces);
  return OkStatus();
}

void BenchRun::FillCommunication(v1::BenchReport* report) const {
  if (traces_ == nullptr || spec::WorldSize(*args_.job) == 1) return;
  const std::vector<AxisTime> axes = AxisTimes(*traces_);
  if (axes.empty()) {
    log::Warn("communication is not in the report: a step has more of it than can be timed",
              {{"most", MostSpans(*traces_)}});
  }
  for (const AxisTime& time : axes) {
    v1::AxisTime* const axis = report->add_communication();
    axis->set_axis(time.axis);
    axis->set_calls(time.calls);
    axis->set_seconds(time.seconds);
    axis->set_hidden_seconds(time.hidden());
    axis->set_exposed_seconds(time.exposed);
  }
  for (const GroupTime& time : GroupTimes(*traces_)) {
    v1::GroupTime* const group = report->add_groups();
    group->set_axis(time.axis);
    group->set_group(time.group);
    group->set_ranks(time.ranks);
    group->set_calls(time.calls);
    group->set_seconds(time.seconds);
    group->set_hidden_seconds(time.hidden());
    group->set_exposed_seconds(time.exposed);
    group->set_most_exposed_seconds(time.most_exposed);
    group->set_most_exposed_rank(time.most_exposed_rank);
  }
  report->set_bubble_by_formula(BubbleByFormula(*args_.job, *traces_));
}

Status BenchRun::WriteTrace() const {
  if (traces_ == nullptr || args_.trace_file.empty()) return OkStatus();
  RETURN_IF_ERROR(base::WriteFileAtomic(args_.trace_file, report::ChromeTrace(*traces_)));
  log::Info("the trace is written", {{"file", args_.trace_file},
                                     {"first_step", traces_->ranks(0).first_step()},
                                     {"last_step", traces_->ranks(0).last_step()},
                                     {"ranks", traces_->ranks_size()}});
  return OkStatus();
}

void BenchRun::MeasureDevice(v1::BenchReport* report) {
  const std::string device = args_.backend->device().Describe();
  report->set_device(device);
  // On the CPU a stream runs each call at once, so the host's launch time is the whole step.
  if (args_.backend->device().kind() == kernels::DeviceKind::kCpu) report->clear_launch_seconds();
  const double peak = StatedPeakFlops(device, TypeOf(args_.job->training().precision())) * 1e-12;
  report->set_peak_tflops(peak);
  if (peak > 0) report->set_mfu(report->tflops_per_slot() / peak);
  const auto memory = args_.backend->device().Memory();
  if (memory) report->set_device_memory_bytes(memory->total_bytes - memory->free_bytes);
  const auto product = MeasureProduct(*args_.backend, args_.product_seconds);
  if (!product.ok()) {
    log::Warn("G was not measured", {{"why", base::Message(product.status())}});
    return;
  }
  report->mutable_product()->set_size(product->size);
  report->mutable_product()->set_dtype(std::string(kernels::Name(product->dtype)));
  report->mutable_product()->set_tflops(product->flops * 1e-12);
  report->set_ratio_to_product(report->tflops_per_slot() / report->product().tflops());
}

void BenchRun::TimeKernels(v1::BenchReport* report) {
  // Clocks that settle under long work are a GPU's.
  const bool settles = args_.backend->device().kind() != kernels::DeviceKind::kCpu;
  const auto times = kernels::replay::Replay(
      *args_.backend, log_.Take(),
      {.seconds = args_.kernel_seconds,
       .large_seconds = settles ? args_.large_kernel_seconds : args_.kernel_seconds,
       .on_progress = [this] { args_.next->OnProgress(last_step_); }});
  double sum = 0;
  for (const kernels::replay::CallTime& time : times) {
    v1::KernelTime* kernel = report->add_kernels();
    kernel->set_call(time.label);
    kernel->set_calls(time.count);
    kernel->set_seconds(time.seconds);
    sum += time.total();
  }
  report->set_kernel_seconds(sum);
  if (sum > 0) report->set_ratio_to_kernels(report->median_step_seconds() / sum);
}

Status BenchRun::Finish(const Status& trained) {
  log_.Stop();
  if (gauge_ != nullptr) gauge_->Stop();
  Status written;
  if (trained.ok()) {
    const Status gathered = GatherTraces();
    if (!gathered.ok()) {
      log::Warn("communication is not in the report: the ranks' traces did not come together",
                {{"why", base::Message(gathered)}});
      if (!args_.trace_file.empty()) written = gathered;
    }
  }
  if (trained.ok() && measures() && !samples_.empty()) {
    v1::BenchReport report;
    samples_.Fill(*args_.job, &report);
    FillCommunication(&report);
    FillHostWait(traces_.get(), &report);
    if (written.ok()) written = WriteTrace();
    MeasureDevice(&report);
    args_.next->OnProgress(last_step_);
    if (gauge_ != nullptr && !gauge_->Fill(report.mutable_readings())) report.clear_readings();
    if (logging_ != nullptr) TimeKernels(&report);
    args_.next->OnBench(report);
  }
  if (std::exchange(exiting_, false)) args_.next->OnState(train::TrainState::kExiting, last_step_);
  return written;
}

}  // namespace mt::bench
