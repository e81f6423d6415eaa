// A job that this program cannot complete is refused: what it leaves open would be a guess.
#include "worker/hf/checkpoint_job.h"

#include "common/spec/parse.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"

namespace mt::hf {

using megatrain::v1::JobSpec;
using megatrain::v1::Training;

StatusOr<JobSpec> JobOfCheckpoint(const checkpoint::Manifest& manifest) {
  JobSpec job;
  const Status read = spec::ToStatus(spec::LoadJob(manifest.spec_json, {}, {.stored = true}, &job));
  if (!read.ok()) {
    return base::FailedPrecondition(
        "the manifest of step {} has a job that this program does not know: {}", manifest.step,
        base::Message(read));
  }
  const auto words = manifest.tensors.find("weights/embedding.word.weight");
  if (words == manifest.tensors.end() || words->second.shape.empty())
    return base::FailedPrecondition("the checkpoint of step {} has no word table", manifest.step);
  job.mutable_model()->set_vocab_size(words->second.shape[0]);
  return job;
}

std::string_view TypeThatTrains(const JobSpec& job) {
  switch (job.training().precision()) {
    case Training::PRECISION_BF16:
      return "BF16";
    case Training::PRECISION_FP16:
      return "F16";
    case Training::PRECISION_FP64:
      return "F64";
    default:
      return "F32";
  }
}

}  // namespace mt::hf
