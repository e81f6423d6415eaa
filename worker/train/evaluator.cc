// An evaluation is a series of forward-only passes over this replica's share of the samples.
#include "worker/train/evaluator.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/ids.h"
#include "common/layout/group_axes.h"
#include "common/report/loss_units.h"

namespace mt::train {
namespace {

// A pass of the pipeline fills and drains it, and its schedule is a list in memory.
constexpr int64_t kMicrobatchesOfPass = 1024;

// What decides which tokens a split has; with `order`, also which of them its first samples hold.
// Names and paths do not.
std::string ContentOf(const data::IndexRecord& record, bool order) {
  std::string text =
      fmt::format("{}|{}|{}|{}|{}|{}", record.split_name, record.split, record.seq_length,
                  record.idx_digest, record.bin_digest, record.weights);
  if (order) {
    text += fmt::format("|{}|{}|{}|{}|{}", record.seed, record.samples_asked, record.epochs,
                        record.separate_last_epoch, record.samples_built);
  }
  for (const data::IndexRecord& member : record.members)
    text += fmt::format("({})", ContentOf(member, order));
  return text;
}

// Of an evaluation with these arguments; `fixed`: each reads the same samples.
checkpoint::Measure MeasureOf(const data::Loader::Args& read, bool fixed) {
  const bool whole = read.end_sample < 0;
  const std::string content = ContentOf(read.dataset->record(), fixed && !whole);
  const std::string_view window = fixed ? checkpoint::kFixed : checkpoint::kRolling;
  return {.kind = std::string(whole ? checkpoint::kSplit : window),
          .samples = whole ? 0 : read.end_sample - read.first_sample,
          .data = "xxh3:" + base::Hash128Hex(content)};
}

}  // namespace

bool Evaluator::DueAfter(int64_t step, int64_t total_steps) const {
  return enabled() && step % args_.every_iters == 0 && step < total_steps;
}

Status Evaluator::SumSamples(data::Loader* loader, int64_t step, Status* read) {
  RETURN_IF_ERROR(args_.engine->BeginEvaluation());
  Activity activity{
      .kind = ActivityKind::kEvaluating, .step = step, .total = loader->num_microbatches()};
  const auto next = [&] {
    args_.observer->OnProgress(step);
    args_.observer->OnActivity(activity);
    ++activity.done;
    if (read->ok()) {
      StatusOr<data::Microbatch> batch = loader->Next();
      if (batch.ok()) return std::move(batch).value();
      *read = batch.status();
    }
    return args_.engine->EmptyMicrobatch();
  };
  for (int64_t left = loader->num_microbatches(); left > 0; left -= kMicrobatchesOfPass) {
    const int64_t microbatches = std::min(left, kMicrobatchesOfPass);
    RETURN_IF_ERROR(args_.engine->EvaluatePass(static_cast<int>(microbatches), next));
  }
  return OkStatus();
}

StatusOr<EvalRecord> Evaluator::Run(int64_t step, EvalScope scope) {
  const base::MonotonicTime begin = args_.clock->Now();
  const bool final = scope == EvalScope::kWhole;
  const bool whole = final || args_.samples_per_eval == 0;
  data::Loader::Args loader_args{.dataset = whole ? args_.data->whole_valid : args_.data->valid,
                                 .micro_batch_size = args_.micro_batch_size,
                                 .dp_rank = args_.engine->axes().IndexIn(layout::kDataAxes),
                                 .dp_size = args_.engine->axes().SizeOf(layout::kDataAxes),
                                 .pad_last = true,
                                 .parts = args_.engine->microbatch_parts(),
                                 .token_bytes = args_.data->token_bytes,
                                 .prefetch = args_.prefetch,
                                 .threads = args_.loader_threads};
  if (!whole) {
    // A last step at which none is due has the window behind the last one's.
    const int64_t window = args_.fixed_windows ? 0 : (step - 1) / args_.every_iters;
    loader_args.first_sample = window * args_.samples_per_eval;
    loader_args.end_sample = loader_args.first_sample + args_.samples_per_eval;
  }
  ASSIGN_OR_RETURN(const auto loader, data::Loader::Create(loader_args));
  Status read;
  const Status summed = SumSamples(loader.get(), step, &read);
  args_.observer->OnActivityEnd(ActivityKind::kEvaluating);
  RETURN_IF_ERROR(summed);
  // A rank that could not read has met the others all the same, and spoils their sum.
  if (!read.ok()) args_.engine->SpoilEvaluation();
  ASSIGN_OR_RETURN(const engine::Engine::EvalSums sums, args_.engine->FinishEvaluation());
  RETURN_IF_ERROR(base::Annotate(read, "evaluation"));
  if (sums.tokens < 0) {
    return base::Unavailable("evaluation after step {}: another rank could not read its data",
                             step);
  }
  EvalRecord record{.step = step,
                    .time_us = base::ToUnixMicros(args_.clock->WallNow()),
                    .loss = sums.tokens > 0 ? sums.loss / sums.tokens : 0,
                    .tokens = static_cast<int64_t>(sums.tokens),
                    .bits_per_byte = report::BitsPerByte(sums.loss, sums.label_bytes),
                    .seconds = std::chrono::duration<double>(args_.clock->Now() - begin).count(),
                    .split = "valid",
                    .final = final,
                    .measure = MeasureOf(loader_args, args_.fixed_windows)};
  if (args_.prompts == nullptr || scope == EvalScope::kLastPart) return record;
  ASSIGN_OR_RETURN(record.samples, args_.prompts->Write([&] { args_.observer->OnProgress(step); }));
  return record;
}

}  // namespace mt::train
