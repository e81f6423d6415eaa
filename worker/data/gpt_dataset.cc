// Reads a sample as Megatron's GPTDataset does (_query_document_sample_shuffle_indices in
// megatron/core/datasets/gpt_dataset.py): from the start of its row in the sample index to the
// start of the next row, inclusive.
#include "worker/data/gpt_dataset.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "worker/data/index_cache.h"

namespace mt::data {

StatusOr<std::unique_ptr<GptDataset>> GptDataset::Create(Args args) {
  CHECK(args.data != nullptr && args.vocab_size > 0);
  StatusOr<std::unique_ptr<SampleIndex>> index =
      LoadOrBuildIndex(*args.data, args.request, args.cache);
  if (!index.ok()) {
    return base::Annotate(index.status(),
                          fmt::format("{} data of {}", Name(args.split_name), args.data->prefix()));
  }
  RETURN_IF_ERROR(args.data->Intact());
  return std::unique_ptr<GptDataset>(new GptDataset(std::move(args), std::move(index).value()));
}

GptDataset::GptDataset(Args args, std::unique_ptr<SampleIndex> index)
    : args_(std::move(args)), index_(std::move(index)) {
  const IndexPlan& plan = index_->plan();
  record_ = {.split_name = std::string(Name(args_.split_name)),
             .source = args_.data->prefix(),
             .samples_asked = args_.request.samples_asked,
             .epochs = plan.epochs,
             .separate_last_epoch = plan.separate_last_epoch,
             .seed = args_.request.seed,
             .seq_length = args_.request.seq_length,
             .split = args_.split_text,
             .samples_built = plan.samples,
             .idx_digest = args_.data->idx_digest(),
             .bin_digest = args_.data->bin_digest()};
}

Status GptDataset::Intact(int64_t sample) const {
  RETURN_IF_ERROR(args_.data->Intact());
  if (!index_->lost()) return OkStatus();
  return base::DataLoss(
      "sample {} of {}: its index, below {}, was cut or could not be read; the next start builds "
      "it "
      "anew",
      sample, args_.data->prefix(), args_.cache.folder);
}

// The index was built of these lengths: they are others now.
Status GptDataset::Changed(int64_t sample) const {
  RETURN_IF_ERROR(Intact(sample));
  return base::DataLoss(
      "{}.idx: sample {} is not {} tokens long any more: the file was written over since it was "
      "opened; put it back, or start again with the new one",
      args_.data->prefix(), sample, seq_length() + 1);
}

Status GptDataset::Read(int64_t sample, std::span<int32_t> tokens, std::span<float> weights) const {
  CHECK_EQ(static_cast<int64_t>(tokens.size()), seq_length() + 1);
  CHECK_EQ(static_cast<int64_t>(weights.size()), seq_length());
  const int64_t row = index_->shuffled(sample);
  const SampleStart begin = index_->start(row);
  const SampleStart end = index_->start(row + 1);  // the token there is this sample's last label
  RETURN_IF_ERROR(Intact(sample));
  int64_t filled = 0;
  for (int64_t position = begin.position; position <= end.position; ++position) {
    const int64_t sequence = index_->document(position);
    RETURN_IF_ERROR(Intact(sample));
    const TokenSpan span = SpanOf(args_.request.range, sequence, args_.data->length(sequence));
    const int64_t from = span.begin + (position == begin.position ? begin.offset : 0);
    const int64_t to =
        position == end.position ? std::min(span.begin + end.offset + 1, span.end) : span.end;
    const int64_t count = std::max<int64_t>(to - from, 0);
    if (filled + count > seq_length() + 1) return Changed(sample);
    RETURN_IF_ERROR(
        args_.data->Read(sequence, from, args_.vocab_size,
                         tokens.subspan(static_cast<size_t>(filled), static_cast<size_t>(count))));
    filled += count;
  }
  if (filled != seq_length() + 1 && !args_.request.keep_partial) return Changed(sample);
  // Only the last sample of a kept partial epoch is shorter.
  std::fill(tokens.begin() + filled, tokens.end(), 0);
  const int64_t labels = std::max<int64_t>(filled - 1, 0);
  std::fill(weights.begin(), weights.begin() + labels, 1.0F);
  std::fill(weights.begin() + labels, weights.end(), 0.0F);
  if (!args_.no_loss_behind) return OkStatus();
  for (size_t t = 0; t < static_cast<size_t>(labels); ++t) {
    if (tokens[t] == *args_.no_loss_behind) weights[t] = 0;
  }
  return OkStatus();
}

}  // namespace mt::data
