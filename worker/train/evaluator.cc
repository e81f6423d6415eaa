#include "worker/train/evaluator.h"

#include <chrono>

namespace mt::train {

bool Evaluator::DueAfter(int64_t step, int64_t total_steps) const {
  return enabled() && step % args_.every_iters == 0 && step < total_steps;
}

Status Evaluator::SumSamples(data::Loader* loader, int64_t step) {
  args_.engine->BeginEvaluation();
  for (int64_t i = 0; i < loader->num_microbatches(); ++i) {
    ASSIGN_OR_RETURN(const data::Microbatch batch, loader->Next());
    args_.engine->EvaluateMicrobatch(batch);
    args_.engine->Synchronize();  // the batch's arrays end here
    args_.observer->OnProgress(step);
  }
  return OkStatus();
}

StatusOr<EvalRecord> Evaluator::Run(int64_t step, bool final) {
  const base::MonotonicTime begin = args_.clock->Now();
  const bool whole = final || args_.samples_per_eval == 0;
  data::Loader::Args loader_args{.dataset = whole ? args_.data->whole_valid : args_.data->valid,
                                 .micro_batch_size = args_.micro_batch_size,
                                 .dp_rank = args_.engine->dp_rank(),
                                 .dp_size = args_.engine->dp_size(),
                                 .pad_last = true,
                                 .prefetch = args_.prefetch,
                                 .threads = args_.loader_threads};
  if (!whole) {
    loader_args.first_sample = (step / args_.every_iters - 1) * args_.samples_per_eval;
    loader_args.end_sample = loader_args.first_sample + args_.samples_per_eval;
  }
  ASSIGN_OR_RETURN(const auto loader, data::Loader::Create(loader_args));
  const Status read = SumSamples(loader.get(), step);
  // A rank that could not read still meets the others, and spoils their sum.
  if (!read.ok()) args_.engine->SpoilEvaluation();
  ASSIGN_OR_RETURN(const Engine::EvalSums sums, args_.engine->FinishEvaluation());
  RETURN_IF_ERROR(base::Annotate(read, "evaluation"));
  if (sums.tokens < 0) {
    return base::Unavailable("evaluation after step {}: another rank could not read its data",
                             step);
  }
  return EvalRecord{.step = step,
                    .time_us = base::ToUnixMicros(args_.clock->WallNow()),
                    .loss = sums.tokens > 0 ? sums.loss / sums.tokens : 0,
                    .tokens = static_cast<int64_t>(sums.tokens),
                    .seconds = std::chrono::duration<double>(args_.clock->Now() - begin).count(),
                    .split = "valid",
                    .final = final};
}

}  // namespace mt::train
