// How many steps are asked for is all that rank 0 must tell the others; everything else follows
// from the step and from the job.
#include "worker/trace/step_profile.h"

#include <algorithm>
#include <cstdlib>

#include "common/base/files.h"
#include "common/control/numbers.h"
#include "common/layout/group_axes.h"
#include "megatrain/v1/trace.pb.h"
#include "worker/checkpoint/exchange.h"
#include "worker/trace/gather_traces.h"

namespace mt::trace {

namespace v1 = megatrain::v1;

namespace {

// In place of a number of steps: rank 0 has no place for the trace.
constexpr int64_t kNoDirectory = -1;
constexpr unsigned kTraceMode = 0640;  // as the log beside it
// A reader that is slow loses nothing: half of what the coordinator keeps for one
// (control::kStreamQueue chunks of a log).
constexpr size_t kMostBytes = size_t{128} << 20;

std::string StepsText(int64_t first, int64_t last) {
  return first == last ? fmt::format("step {}", first) : fmt::format("steps {} to {}", first, last);
}

}  // namespace

StepProfile::StepProfile(const Args& args)
    : args_(args),
      tracer_({.device = &args.engine->device(),
               .spans = args.spans,
               .phases = &args.engine->phases(),
               .axes = &args.groups->axes(),
               .chunks = args.chunks,
               .clock = args.clock}) {}

Status StepProfile::Check(int64_t steps, int64_t last, bool held) const {
  const int ranks = args_.groups->axes().SizeOf(layout::kWorldAxes);
  if (steps == kNoDirectory) {
    return base::FailedPrecondition(
        "the worker of rank 0 keeps no traces: it is of an older version, or has no log root");
  }
  if (steps < 1 || steps > control::kMostProfileSteps) {
    return base::InvalidArgument("a profile is of 1 to {} steps, not of {}",
                                 control::kMostProfileSteps, steps);
  }
  if (ranks > kMostTracedRanks) {
    return base::FailedPrecondition("traces are of jobs of at most {} ranks, this one has {}",
                                    kMostTracedRanks, ranks);
  }
  // One trace at a time, and the benchmark's is read when the run ends.
  if (!args_.planned.empty()) {
    return base::FailedPrecondition(
        "a benchmark traces its own {} and nothing else: mt-rank --standalone JOB --bench --trace "
        "FILE writes them",
        StepsText(args_.planned.first, args_.planned.last));
  }
  if (tracer_.active()) {
    return base::FailedPrecondition(
        "another profile is under way, of {}: ask again when it is over",
        StepsText(tracer_.steps().first, tracer_.steps().last));
  }
  if (held) return base::FailedPrecondition("the ranks are held: no step runs");
  if (last >= args_.total_steps)
    return base::FailedPrecondition("step {} was the run's last one", last);
  return OkStatus();
}

Status StepProfile::Begin(const std::optional<int64_t>& asked, int64_t last, bool held,
                          Status* refused) {
  checkpoint::Exchange exchange(args_.groups->world(), &args_.engine->stream());
  int64_t mine = asked.value_or(0);
  if (args_.trace_directory.empty()) mine = kNoDirectory;
  ASSIGN_OR_RETURN(const std::string text, exchange.Broadcast(std::to_string(mine), /*root=*/0));
  const int64_t steps = std::strtoll(text.c_str(), nullptr, 10);
  *refused = Check(steps, last, held);
  if (!refused->ok()) return OkStatus();
  profiling_ = true;
  asked_ = steps;
  outcome_.reset();
  tracer_.Start({.first = last + 1, .last = std::min(last + steps, args_.total_steps)});
  return OkStatus();
}

Status StepProfile::BeforeStep(int64_t step) {
  if (profiling_) {
    return tracer_.EndsBefore(step) ? Finish(step - 1, "") : OkStatus();
  }
  if (!args_.planned.empty() && step == args_.planned.first) tracer_.Start(args_.planned);
  return OkStatus();
}

Status StepProfile::EndEarly(int64_t last, std::string_view why) {
  if (!profiling_) return OkStatus();
  const TraceSteps steps = tracer_.steps();
  if (last >= steps.last) return Finish(last, "");
  return Finish(last, fmt::format("{} of {} steps: {} after step {}", last - steps.first + 1,
                                  asked_, why, last));
}

Status StepProfile::EndRun(int64_t last) {
  if (profiling_) return EndEarly(last, "the run ended");
  if (!tracer_.active()) return OkStatus();
  v1::RankTrace trace;
  tracer_.Finish(last, &trace);
  args_.on_planned(trace);
  return OkStatus();
}

Status StepProfile::Finish(int64_t last, std::string_view note) {
  profiling_ = false;
  const int64_t traced = tracer_.steps().last - tracer_.steps().first + 1;
  v1::RankTrace mine;
  tracer_.Finish(last, &mine);
  v1::JobTrace trace;
  trace.set_note(std::string(note));
  if (note.empty() && traced < asked_) {
    trace.set_note(fmt::format("{} of {} steps: step {} was the run's last one", traced, asked_,
                               mine.last_step()));
  }
  RETURN_IF_ERROR(mt::trace::GatherTraces(args_.groups->world(), &args_.engine->stream(),
                                          args_.clock, mine, &trace));
  if (args_.groups->rank() == 0) {
    outcome_ = mine.last_step() < mine.first_step()
                   ? base::FailedPrecondition("no step was traced: {}", note)
                   : Write(trace);
  }
  args_.engine->phases().EndBetween();  // what that took is no step's time
  return OkStatus();
}

StatusOr<ProfileRecord> StepProfile::Write(const v1::JobTrace& trace) const {
  if (const size_t size = trace.ByteSizeLong(); size > kMostBytes) {
    return base::Error(absl::StatusCode::kResourceExhausted,
                       "the trace has {} MiB, of at most {}: ask for fewer steps", size >> 20,
                       kMostBytes >> 20);
  }
  const std::string bytes = trace.SerializeAsString();
  const ProfileRecord record{.trace = fmt::format("trace-{}.pb", args_.job_uid),
                             .first_step = trace.ranks(0).first_step(),
                             .last_step = trace.ranks(0).last_step(),
                             .bytes = static_cast<int64_t>(bytes.size()),
                             .note = trace.note()};
  RETURN_IF_ERROR(base::WriteFileAtomic(base::JoinPath(args_.trace_directory, record.trace), bytes,
                                        kTraceMode));
  return record;
}

}  // namespace mt::trace
