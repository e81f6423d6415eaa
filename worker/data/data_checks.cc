// Blocks lie at equal shares of the range: of few sequences several in each.
#include "worker/data/data_checks.h"

#include <algorithm>

#include "common/base/log.h"

namespace mt::data {

Status CheckSampledIds(const IndexedDataset& data, SequenceRange range, int64_t vocab_size) {
  constexpr int64_t kBlocks = 64;
  constexpr int64_t kBlockBytes = 4096;
  const int64_t sequences = range.end - range.begin;
  const int64_t most = kBlockBytes / std::max<int64_t>(SizeOf(data.token_type()), 1);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < kBlocks && sequences > 0; ++i) {
    // As quotient and rest, which do not overflow.
    const int64_t part = sequences % kBlocks * i;
    const int64_t sequence = range.begin + sequences / kBlocks * i + part / kBlocks;
    const TokenSpan span = SpanOf(range, sequence, data.length(sequence));
    const int64_t length = std::max<int64_t>(span.end - span.begin, 0);
    const int64_t count = std::min(most, length);
    ids.resize(static_cast<size_t>(count));
    const int64_t share = sequences < kBlocks ? part % kBlocks : i;
    const int64_t offset = span.begin + (length - count) * share / (kBlocks - 1);
    RETURN_IF_ERROR(data.Read(sequence, offset, vocab_size, ids));
  }
  return OkStatus();
}

void SayShared(const DataSets& train, const DataSets& held_out, std::string_view split) {
  for (const auto& other : held_out) {
    const auto same = std::find_if(train.begin(), train.end(), [&](const auto& data) {
      return data == other || (data->idx_digest() == other->idx_digest() &&
                               data->bin_digest() == other->bin_digest());
    });
    if (same == train.end()) continue;
    log::Warn("a data set is trained on and held out: its loss says nothing about other text",
              {{"split", split}, {"train", (*same)->prefix()}, {"held_out", other->prefix()}});
  }
}

}  // namespace mt::data
