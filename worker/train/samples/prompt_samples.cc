// The engine's weights are whole once an evaluation has begun, and its stream orders what is
// computed here behind them.
#include "worker/train/samples/prompt_samples.h"

#include <utility>

#include "common/base/log.h"
#include "common/spec/derived.h"
#include "megatrain/v1/job.pb.h"
#include "worker/comm/process_group.h"

namespace mt::train {

PromptSamples::PromptSamples(const megatrain::v1::JobSpec& job, engine::Engine* engine,
                             parallel::RankGroups* groups, TextWriter* writer)
    : engine_(engine),
      others_(groups->axes().SizeOf(layout::kGradientAxes) > 1 ? groups->world() : nullptr),
      writer_(writer),
      prompts_(job.training().eval().prompts().begin(), job.training().eval().prompts().end()),
      patience_(spec::SaveTimeout(job)) {}

StatusOr<std::vector<EvalSample>> PromptSamples::WriteHere(const std::function<void()>& on_token) {
  decode::GenerateHooks hooks;
  hooks.interrupted = [&on_token] {
    on_token();
    return false;
  };
  StatusOr<decode::GenerateReport> report = decode::GenerateReport();
  RETURN_IF_ERROR(writer_->Write(writer_->prompts(), hooks, &report));
  std::vector<EvalSample> samples;
  if (!report.ok()) {
    // These ranks have the same logits, and so the same error: training goes on without samples.
    log::Warn("an evaluation writes no samples", {{"why", base::Message(report.status())}});
    return samples;
  }
  for (const decode::Continuation& one : report->continuations) {
    KeptText kept = Keep(one);
    samples.push_back({.prompt = prompts_[static_cast<size_t>(one.prompt)],
                       .text = std::move(kept.text),
                       .finish = std::move(kept.finish)});
  }
  return samples;
}

StatusOr<std::vector<EvalSample>> PromptSamples::Write(const std::function<void()>& on_token) {
  std::vector<EvalSample> samples;
  if (writer_ != nullptr) {
    ASSIGN_OR_RETURN(samples, WriteHere(on_token));
  }
  if (others_ == nullptr) return samples;
  // A replica that writes nothing waits here as long as for a save: in the sums of the next step
  // its patience would be that with one call.
  const comm::OpTimeoutScope patience(others_, patience_);
  RETURN_IF_ERROR(others_->Barrier(engine_->stream()));
  return samples;
}

}  // namespace mt::train
