// Open does the structure; the ids are read in pieces, so memory stays small.
#include "worker/data/token_files/verify.h"

#include <algorithm>
#include <limits>

#include "common/base/ids.h"
#include "worker/data/indexed_dataset.h"

namespace mt::data {
namespace {

constexpr int64_t kPieceTokens = int64_t{1} << 18;

// The largest id of a sequence, after a check of all.
StatusOr<int64_t> LargestId(const IndexedDataset& data, int64_t sequence, int64_t vocab_size,
                            std::vector<int32_t>* buffer) {
  int64_t largest = -1;
  const int64_t length = data.length(sequence);
  for (int64_t at = 0; at < length; at += kPieceTokens) {
    buffer->resize(static_cast<size_t>(std::min(kPieceTokens, length - at)));
    RETURN_IF_ERROR(data.Read(sequence, at, vocab_size, *buffer));
    largest = std::max<int64_t>(largest, *std::ranges::max_element(*buffer));
  }
  return largest;
}

}  // namespace

StatusOr<VerifyReport> VerifyDataset(const VerifyArgs& args) {
  ASSIGN_OR_RETURN(const auto data, IndexedDataset::Open(args.prefix));
  VerifyReport report = {.idx_digest = data->idx_digest(),
                         .token_type = data->token_type(),
                         .documents = data->num_documents(),
                         .sequences = data->num_sequences(),
                         .tokens = data->num_tokens()};
  const int64_t token_bytes = SizeOf(report.token_type);
  report.unreferenced_bytes = data->bin_bytes() - report.tokens * token_bytes;
  for (int64_t d = 0; d < report.documents; ++d) {
    const int64_t begin = data->document_begin(d);
    const int64_t end = data->document_begin(d + 1);
    report.empty_documents += data->CountTokens(begin, end) == 0 ? 1 : 0;
  }
  const int64_t most =
      args.vocab_size > 0 ? args.vocab_size : int64_t{std::numeric_limits<int32_t>::max()} + 1;
  base::Hash128 hash;
  std::vector<int32_t> buffer;
  int64_t done_bytes = 0;
  int64_t told_bytes = 0;
  for (int64_t i = 0; i < report.sequences; ++i) {
    ASSIGN_OR_RETURN(const int64_t largest, LargestId(*data, i, most, &buffer));
    report.largest_id = std::max(report.largest_id, largest);
    const std::string_view bytes = data->SequenceBytes(i);
    hash.Add(bytes);
    done_bytes += std::ssize(bytes);
    if (!args.progress || done_bytes - told_bytes < (1 << 22)) continue;
    told_bytes = done_bytes;
    args.progress(done_bytes, report.tokens * token_bytes);
  }
  RETURN_IF_ERROR(data->Intact());
  report.tokens_digest = hash.Take();
  return report;
}

}  // namespace mt::data
