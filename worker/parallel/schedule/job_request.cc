// The interleaved group is taken from the job; everything else is a field of `parallel`.
#include "worker/parallel/schedule/job_request.h"

#include "common/base/math.h"
#include "megatrain/v1/job.pb.h"

namespace mt::schedule {
namespace {

using megatrain::v1::Parallel;

Kind KindOf(Parallel::Schedule schedule) {
  switch (schedule) {
    case Parallel::SCHEDULE_GPIPE:
      return Kind::kGPipe;
    case Parallel::SCHEDULE_1F1B:
      return Kind::kOneFOneB;
    case Parallel::SCHEDULE_INTERLEAVED:
      return Kind::kInterleaved;
    default:
      CHECK(false) << "schedule " << static_cast<int>(schedule) << " is not resolved";
      return Kind::kOneFOneB;
  }
}

}  // namespace

Request RequestOf(const megatrain::v1::JobSpec& job, int64_t microbatches) {
  const Parallel& parallel = job.parallel();
  const Kind kind = KindOf(parallel.schedule());
  Request request{.kind = parallel.pipeline() == 1 ? Kind::kOneFOneB : kind,
                  .stages = base::CheckedCast<int>(parallel.pipeline()),
                  .microbatches = base::CheckedCast<int>(microbatches),
                  .chunks = base::CheckedCast<int>(parallel.virtual_stages())};
  if (kind == Kind::kInterleaved) {
    request.group = base::CheckedCast<int>(parallel.microbatch_group());
  }
  return request;
}

}  // namespace mt::schedule
