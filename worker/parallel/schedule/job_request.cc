// The interleaved group is taken from the job; everything else is a field of `parallel`.
#include "worker/parallel/schedule/job_request.h"

#include "common/base/math.h"
#include "megatrain/v1/job.pb.h"

namespace mt::parallel {
namespace {

using megatrain::v1::Parallel;

ScheduleKind KindOf(Parallel::Schedule schedule) {
  switch (schedule) {
    case Parallel::SCHEDULE_GPIPE:
      return ScheduleKind::kGPipe;
    case Parallel::SCHEDULE_1F1B:
      return ScheduleKind::kOneFOneB;
    case Parallel::SCHEDULE_INTERLEAVED:
      return ScheduleKind::kInterleaved;
    default:
      CHECK(false) << "schedule " << static_cast<int>(schedule) << " is not resolved";
      return ScheduleKind::kOneFOneB;
  }
}

}  // namespace

ScheduleRequest ScheduleRequestOf(const megatrain::v1::JobSpec& job, int64_t microbatches) {
  const Parallel& parallel = job.parallel();
  const ScheduleKind kind = KindOf(parallel.schedule());
  ScheduleRequest request{.kind = parallel.pipeline() == 1 ? ScheduleKind::kOneFOneB : kind,
                          .stages = base::CheckedCast<int>(parallel.pipeline()),
                          .microbatches = base::CheckedCast<int>(microbatches),
                          .chunks = base::CheckedCast<int>(parallel.virtual_stages())};
  if (kind == ScheduleKind::kInterleaved) {
    request.group = base::CheckedCast<int>(parallel.microbatch_group());
  }
  return request;
}

}  // namespace mt::parallel
