// The engine's weights are whole once an evaluation has begun, and its stream orders what is
// computed here behind them.
#include "worker/train/samples/prompt_samples.h"

#include <utility>

#include "common/base/log.h"
#include "common/spec/derived.h"
#include "megatrain/v1/job.pb.h"
#include "worker/comm/process_group.h"
#include "worker/train/samples/text_turn.h"

namespace mt::train {

PromptSamples::PromptSamples(const megatrain::v1::JobSpec& job, engine::Engine* engine,
                             parallel::RankGroups* groups, TextWriter* writer)
    : engine_(engine),
      others_(groups->axes().SizeOf(layout::kGradientAxes) > 1 ? groups->world() : nullptr),
      writer_(writer),
      prompts_(job.training().eval().prompts().begin(), job.training().eval().prompts().end()),
      patience_(spec::SaveTimeout(job)) {}

StatusOr<std::vector<EvalSample>> PromptSamples::Write(const std::function<void()>& on_token) {
  // A replica that writes nothing waits for a token as long as for a save.
  const comm::OpTimeoutScope patience(others_, patience_);
  TextTurn turn({.group = others_, .engine = engine_, .on_token = on_token});
  std::vector<EvalSample> samples;
  if (writer_ == nullptr) {
    RETURN_IF_ERROR(turn.Wait());
    return samples;
  }
  StatusOr<decode::GenerateReport> report = decode::GenerateReport();
  const Status written = writer_->Write(writer_->prompts(), turn.hooks(), &report);
  RETURN_IF_ERROR(turn.status());
  RETURN_IF_ERROR(written);
  RETURN_IF_ERROR(turn.End());
  if (!report.ok()) {
    // These ranks have the same logits, and so the same error: training goes on without samples.
    log::Warn("an evaluation writes no samples", {{"why", base::Message(report.status())}});
    return samples;
  }
  for (const decode::Continuation& one : report->continuations) {
    KeptText kept = KeptTextOf(one);
    samples.push_back({.prompt = prompts_[static_cast<size_t>(one.prompt)],
                       .text = std::move(kept.text),
                       .finish = std::move(kept.finish)});
  }
  return samples;
}

}  // namespace mt::train
