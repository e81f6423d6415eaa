// The rules of fields are those of a job that reads a checkpoint: one is made around them.
#include "daemon/api/decode_texts.h"

#include <algorithm>
#include <string>

#include "common/control/numbers.h"
#include "common/rpc/reason.h"
#include "common/spec/validate.h"
#include "megatrain/v1/job.pb.h"

namespace mt::daemon {
namespace {

Status CheckTextBounds(const v1::Generate& generate) {
  const int64_t texts = std::max(generate.prompts_size(), 1) * generate.samples();
  if (texts > control::kMostDecodedTexts) {
    return base::InvalidArgument(
        "{} texts ({} prompts, of each {}), and a job that trains writes at most {} at once: ask "
        "for fewer, or have a checkpoint read",
        texts, std::max(generate.prompts_size(), 1), generate.samples(),
        control::kMostDecodedTexts);
  }
  int64_t bytes = 0;
  for (const std::string& prompt : generate.prompts()) bytes += std::ssize(prompt);
  for (const std::string& stop : generate.stops()) bytes += std::ssize(stop);
  if (bytes <= control::kMaxDecodeBytes) return OkStatus();
  return base::InvalidArgument(
      "prompts and stop strings have {} bytes together, and a job that trains takes at most {}",
      bytes, control::kMaxDecodeBytes);
}

Status CompleteFields(v1::Generate* generate) {
  if (generate->logprobs()) {
    return base::InvalidArgument(
        "generate.logprobs: a job that trains gives none; have a checkpoint read");
  }
  v1::JobSpec job;
  job.set_name("texts");
  job.set_kind(v1::JobSpec::KIND_GENERATE);
  job.mutable_read()->set_checkpoint("texts");
  *job.mutable_generate() = *generate;
  RETURN_IF_ERROR(spec::ToStatus(spec::CompleteJob({}, &job)));
  *generate = job.generate();
  return CheckTextBounds(*generate);
}

}  // namespace

Status CompleteDecode(v1::Generate* generate) {
  return rpc::WithReason(CompleteFields(generate), rpc::reason::kInvalidRequest);
}

}  // namespace mt::daemon
