// One pass over the lengths of all sequences; only the preview touches the .bin.
#include "worker/data/inspect.h"

#include <algorithm>
#include <limits>

#include "worker/data/indexed_dataset.h"

namespace mt::data {

StatusOr<InspectReport> Inspect(const std::string& prefix, int64_t preview_tokens) {
  ASSIGN_OR_RETURN(const auto data, IndexedDataset::Open(prefix));
  InspectReport report;
  report.prefix = prefix;
  report.idx_digest = data->idx_digest();
  report.token_type = data->token_type();
  report.documents = data->num_documents();
  report.sequences = data->num_sequences();
  report.tokens = data->num_tokens();
  report.bin_bytes = data->bin_bytes();
  report.max_length = data->max_length();
  for (int64_t i = 0; i < data->num_sequences(); ++i) {
    const int64_t length = data->length(i);
    report.min_length = i == 0 ? length : std::min(report.min_length, length);
    const int64_t room = preview_tokens - static_cast<int64_t>(report.first_tokens.size());
    const int64_t count = std::min(room, length);
    if (count <= 0) continue;
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    // Every id is accepted, because the vocabulary is not known here.
    RETURN_IF_ERROR(data->Read(i, 0, int64_t{std::numeric_limits<int32_t>::max()} + 1, tokens));
    report.first_tokens.insert(report.first_tokens.end(), tokens.begin(), tokens.end());
  }
  if (report.sequences > 0) {
    report.mean_length = static_cast<double>(report.tokens) / static_cast<double>(report.sequences);
  }
  return report;
}

}  // namespace mt::data
