// Sequences that follow each other in the .bin are copied one by one into the writer's buffer,
// which makes large writes of them.
#include "worker/data/token_files/rearrange.h"

#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "worker/data/indexed_dataset.h"
#include "worker/data/token_files/raw_writer.h"
#include "worker/data/token_files/tally.h"
#include "worker/data/tokenizer/record.h"

namespace mt::data {
namespace {

// Copies documents [begin, end) and adds the bytes to `done`.
Status CopyDocuments(const IndexedDataset& from, int64_t begin, int64_t end, RawWriter* to,
                     const std::function<void(int64_t bytes)>& copied) {
  for (int64_t d = begin; d < end; ++d) {
    for (int64_t i = from.document_begin(d); i < from.document_begin(d + 1); ++i) {
      const std::string_view tokens = from.SequenceBytes(i);
      RETURN_IF_ERROR(to->Append(tokens));
      RETURN_IF_ERROR(from.Intact());
      RETURN_IF_ERROR(to->EndSequence());
      copied(static_cast<int64_t>(tokens.size()));
    }
    to->EndDocument();
  }
  return OkStatus();
}

using Record = std::optional<TokenizerRecord>;

// The record that all of them have; none where one has none.
StatusOr<Record> CommonRecord(const std::vector<std::string>& prefixes) {
  Record first;
  std::string of_first;
  bool all = true;
  for (const std::string& prefix : prefixes) {
    ASSIGN_OR_RETURN(const Record record, ReadTokenizerRecord(prefix));
    if (record && first && !(*record == *first)) {
      return base::InvalidArgument("{} was made by tokenizer {}, {} by {}: one tokenizer at a time",
                                   prefix, RecordText(*record), of_first, RecordText(*first));
    }
    all = all && record.has_value();
    if (record && !first) {
      first = record;
      of_first = prefix;
    }
    // A record of an earlier version does not tell them.
    if (record && first->token_bytes.empty()) first->token_bytes = record->token_bytes;
  }
  return all ? first : Record();
}

// Adds up what was copied and tells every few MiB.
class Counter {
 public:
  Counter(CopyProgress progress, int64_t total_bytes)
      : progress_(std::move(progress)), total_bytes_(total_bytes) {}
  void Add(int64_t bytes) {
    done_bytes_ += bytes;
    if (!progress_ || (done_bytes_ < total_bytes_ && done_bytes_ - told_bytes_ < (1 << 22))) return;
    told_bytes_ = done_bytes_;
    progress_(done_bytes_, total_bytes_);
  }

 private:
  const CopyProgress progress_;
  const int64_t total_bytes_;
  int64_t done_bytes_ = 0;
  int64_t told_bytes_ = 0;
};

WrittenDataset Written(const std::string& prefix, TokenType type, const RawWriter& writer) {
  return {.prefix = prefix,
          .token_type = type,
          .documents = writer.num_documents(),
          .sequences = writer.num_sequences(),
          .tokens = writer.num_tokens()};
}

// What MergeDatasets joins. A rank of datatrove that had no documents leaves a pair of an empty
// .bin and an .idx without entries, whose type and record mean nothing.
struct Inputs {
  std::vector<std::string> prefixes{};
  std::vector<std::shared_ptr<const IndexedDataset>> data{};
  int64_t total_bytes = 0;
  Tally left_out{};
};

StatusOr<Inputs> OpenInputs(const MergeArgs& args) {
  if (args.inputs.empty()) return base::InvalidArgument("no data sets are given");
  Inputs inputs;
  for (const std::string& prefix : args.inputs) {
    if (prefix == args.output)
      return base::InvalidArgument("{} is to be read and written: choose another output", prefix);
    ASSIGN_OR_RETURN(auto data, IndexedDataset::Open(prefix));
    if (data->num_documents() == 0) {
      inputs.left_out.Add(prefix);
      continue;
    }
    const TokenType type = data->token_type();
    inputs.total_bytes += data->num_tokens() * SizeOf(type);
    if (!inputs.data.empty() && type != inputs.data.front()->token_type()) {
      return base::InvalidArgument(
          "{} holds {} and {} {}: data sets of one type can be merged; they have different "
          "vocabularies, or were made by different tools",
          prefix, Name(type), inputs.prefixes.front(), Name(inputs.data.front()->token_type()));
    }
    inputs.prefixes.push_back(prefix);
    inputs.data.push_back(std::move(data));
  }
  if (!inputs.data.empty()) return inputs;
  return base::InvalidArgument("{}: none of the {} data sets has a document", args.inputs.front(),
                               args.inputs.size());
}

// The files of the tokenizer of this record, where they are kept beside one of the data sets.
std::optional<TokenizerConfig> KeptBeside(const std::vector<std::string>& prefixes,
                                          const Record& record) {
  if (!record) return std::nullopt;
  for (const std::string& prefix : prefixes) {
    const std::string folder = std::filesystem::path(prefix).parent_path().string();
    if (auto kept = FindKeptTokenizer(record->type, record->digest, folder)) return kept;
  }
  return std::nullopt;
}

}  // namespace

StatusOr<WrittenDataset> MergeDatasets(const MergeArgs& args) {
  ASSIGN_OR_RETURN(const Inputs inputs, OpenInputs(args));
  ASSIGN_OR_RETURN(const Record record, CommonRecord(inputs.prefixes));
  const TokenType type = inputs.data.front()->token_type();
  ASSIGN_OR_RETURN(const auto writer, RawWriter::Create(args.output, type, args.overwrite));
  Counter counter(args.progress, inputs.total_bytes);
  for (const auto& input : inputs.data) {
    RETURN_IF_ERROR(CopyDocuments(*input, 0, input->num_documents(), writer.get(),
                                  [&](int64_t bytes) { counter.Add(bytes); }));
  }
  RETURN_IF_ERROR(writer->Finish(record, KeptBeside(inputs.prefixes, record)));
  WrittenDataset written = Written(args.output, type, *writer);
  if (inputs.left_out.any()) {
    written.notes.push_back(
        fmt::format("left out, since without a document: {}", inputs.left_out.Paths()));
  }
  return written;
}

StatusOr<std::vector<WrittenDataset>> DivideDataset(const DivideArgs& args) {
  for (const double share : args.shares) {
    if (!(share > 0) || !std::isfinite(share))
      return base::InvalidArgument("a share of {}: shares are positive numbers", share);
  }
  if (args.shares.empty()) return base::InvalidArgument("no shares are given");
  ASSIGN_OR_RETURN(const auto input, IndexedDataset::Open(args.input));
  ASSIGN_OR_RETURN(const Record record, ReadTokenizerRecord(args.input));
  const double sum = std::accumulate(args.shares.begin(), args.shares.end(), 0.0);
  const int64_t documents = input->num_documents();
  std::vector<int64_t> ends{0};
  double before = 0;
  for (const double share : args.shares) {
    before += share;
    ends.push_back(std::llrint(static_cast<double>(documents) * (before / sum)));
    if (ends.back() > ends[ends.size() - 2]) continue;
    return base::InvalidArgument(
        "{}: part {} of {} would have none of its {} documents: give it a larger share", args.input,
        ends.size() - 2, args.shares.size(), documents);
  }
  for (size_t part = 0; part + 1 < ends.size(); ++part) {
    const std::string prefix = fmt::format("{}_{}", args.output, part);
    std::error_code ignored;
    if (std::filesystem::equivalent(prefix + ".bin", args.input + ".bin", ignored))
      return base::InvalidArgument("{} would be read and written: choose another output", prefix);
    RETURN_IF_ERROR(RawWriter::CheckFree(prefix, args.overwrite));
  }
  // No part appears before the tokens of all are written. One file is open at a time, however many
  // parts there are.
  std::vector<std::unique_ptr<RawWriter>> writers;
  Counter counter(args.progress, input->num_tokens() * SizeOf(input->token_type()));
  for (size_t part = 0; part + 1 < ends.size(); ++part) {
    ASSIGN_OR_RETURN(auto writer, RawWriter::Create(fmt::format("{}_{}", args.output, part),
                                                    input->token_type(), args.overwrite));
    RETURN_IF_ERROR(CopyDocuments(*input, ends[part], ends[part + 1], writer.get(),
                                  [&](int64_t bytes) { counter.Add(bytes); }));
    RETURN_IF_ERROR(writer->EndTokens());
    writers.push_back(std::move(writer));
  }
  std::vector<WrittenDataset> parts;
  for (size_t part = 0; part < writers.size(); ++part) {
    const std::string prefix = fmt::format("{}_{}", args.output, part);
    RETURN_IF_ERROR(writers[part]->Finish(record, KeptBeside({args.input}, record)));
    parts.push_back(Written(prefix, input->token_type(), *writers[part]));
  }
  return parts;
}

}  // namespace mt::data
