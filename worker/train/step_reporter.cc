// Times come from the engine's PhaseClock, which is asked after each step: on a CPU slot it knows
// them at once, on a GPU with the outcome at the latest.
#include "worker/train/step_reporter.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "common/layout/group_axes.h"
#include "megatrain/v1/step.pb.h"

namespace mt::train {

namespace {
constexpr auto kSave = static_cast<size_t>(report::StepPhase::kCheckpoint);
}  // namespace

StepReporter::StepReporter(const Args& args) : args_(args), config_(args.config) {
  MeasureMemory();
}

void StepReporter::Enqueued(int64_t step, double launch_seconds) {
  times_[step] = {.batch = args_.engine->BatchOf(step), .launch_seconds = launch_seconds};
}

void StepReporter::CountEnded(StepCursor* cursor) {
  // Evaluations and saves lie between the steps: only the time of saves is kept, for the record.
  while (cursor->counted() < cursor->last()) {
    const std::optional<engine::StepTime> time = args_.engine->phases().Of(cursor->counted() + 1);
    if (!time) return;
    if (cursor->counted() == cursor->start())
      args_.observer->OnActivityEnd(ActivityKind::kFirstStep);
    StepTimes& times = times_[cursor->Count()];
    times.step_seconds = time->seconds;
    times.phase_seconds = time->phases;
    times.phase_seconds[kSave] += time->between[kSave];
    counters_.tokens +=
        times.batch / args_.groups->axes().SizeOf(layout::kDataAxes) * args_.seq_length;
    engine::Add(time->between, &counters_.phase_seconds);
    engine::Add(time->phases, &counters_.phase_seconds);
    counters_.comm = args_.groups->Stats();
    counters_.step_seconds = time->seconds;
    args_.observer->OnCounters(counters_);
  }
}

double StepReporter::SaveSeconds() const { return counters_.phase_seconds[kSave]; }

void StepReporter::Report(int64_t step, const engine::StepOutcome& outcome) {
  megatrain::v1::StepRecord record = MakeStepRecord(config_, step, outcome, times_[step]);
  record.set_time_us(base::ToUnixMicros(args_.clock->WallNow()));
  args_.observer->OnStep(record);
}

void StepReporter::MeasureMemory() {
  const memory::BytesByKind now = args_.engine->MeasureMemory();
  for (size_t k = 0; k < now.size(); ++k) {
    config_.memory_bytes[k] = std::max(config_.memory_bytes[k], now[k]);
  }
  counters_.memory_bytes = config_.memory_bytes;
}

}  // namespace mt::train
