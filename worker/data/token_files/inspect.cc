// One pass over the lengths of all sequences; only what is shown is read of the .bin.
#include "worker/data/token_files/inspect.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "worker/data/data_checks.h"
#include "worker/data/indexed_dataset.h"
#include "worker/data/tokenizer/record.h"

namespace mt::data {
namespace {

// The first tokens of sequences [begin, end), at most so many. Every id is accepted, because the
// vocabulary is not known here.
StatusOr<std::vector<int32_t>> FirstTokens(const IndexedDataset& data, int64_t begin, int64_t end,
                                           int64_t most) {
  std::vector<int32_t> out;
  for (int64_t i = begin; i < end && std::ssize(out) < most; ++i) {
    const int64_t count = std::min<int64_t>(most - std::ssize(out), data.length(i));
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    RETURN_IF_ERROR(data.Read(i, 0, int64_t{std::numeric_limits<int32_t>::max()} + 1, tokens));
    out.insert(out.end(), tokens.begin(), tokens.end());
  }
  return out;
}

void CountLengths(const IndexedDataset& data, InspectReport* report) {
  std::array<int64_t, 33> bins{};  // by the bits of the length
  for (int64_t i = 0; i < data.num_sequences(); ++i) {
    const int64_t length = data.length(i);
    report->min_length = i == 0 ? length : std::min(report->min_length, length);
    ++bins[static_cast<size_t>(std::bit_width(static_cast<uint32_t>(length)))];
  }
  size_t first = 0;
  size_t end = bins.size();
  while (first < end && bins[first] == 0) ++first;
  while (end > first && bins[end - 1] == 0) --end;
  for (size_t bits = first; bits < end; ++bits) {
    const int64_t low = bits == 0 ? 0 : int64_t{1} << (bits - 1);
    const int64_t high = bits == 0 ? 0 : (int64_t{1} << bits) - 1;
    report->lengths.push_back({.low = low, .high = high, .sequences = bins[bits]});
  }
}

}  // namespace

StatusOr<InspectReport> Inspect(const InspectArgs& args) {
  ASSIGN_OR_RETURN(const auto data, IndexedDataset::Open(args.prefix));
  const auto made_by = ReadTokenizerRecord(args.prefix);
  if (made_by.ok() && made_by->has_value()) {
    RETURN_IF_ERROR(
        CheckSampledIds(*data, {.begin = 0, .end = data->num_sequences()}, (*made_by)->vocab_size));
  }
  InspectReport report;
  report.prefix = args.prefix;
  report.idx_digest = data->idx_digest();
  report.token_type = data->token_type();
  report.documents = data->num_documents();
  report.sequences = data->num_sequences();
  report.tokens = data->num_tokens();
  report.bin_bytes = data->bin_bytes();
  report.max_length = data->max_length();
  CountLengths(*data, &report);
  if (report.sequences > 0) {
    report.mean_length = static_cast<double>(report.tokens) / static_cast<double>(report.sequences);
  }
  ASSIGN_OR_RETURN(report.first_tokens,
                   FirstTokens(*data, 0, data->num_sequences(), args.preview_tokens));
  for (int64_t d = 0; d < report.documents; ++d) {
    if (data->document_begin(d) == data->document_begin(d + 1)) ++report.empty_documents;
  }
  const int64_t samples = std::min(args.samples, report.documents);
  for (int64_t s = 0; s < samples; ++s) {
    const int64_t document = s * report.documents / samples;
    const int64_t begin = data->document_begin(document);
    const int64_t end = data->document_begin(document + 1);
    DocumentSample sample = {.document = document, .length = data->CountTokens(begin, end)};
    ASSIGN_OR_RETURN(sample.tokens, FirstTokens(*data, begin, end, args.sample_tokens));
    report.samples.push_back(std::move(sample));
  }
  RETURN_IF_ERROR(data->Intact());
  return report;
}

}  // namespace mt::data
