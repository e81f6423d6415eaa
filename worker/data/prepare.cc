// Encodes documents in input order in one pass, or in shuffled order in two: the first finds the
// documents of all files, the second encodes them through mapped files.
#include "worker/data/prepare.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "common/base/files.h"
#include "worker/data/indexed_dataset_writer.h"
#include "worker/data/mapped_file.h"
#include "worker/data/shuffle.h"

namespace mt::data {
namespace {

constexpr int64_t kProgressBytes = int64_t{4} << 20;
constexpr size_t kMaxMapped = 1024;  // the kernel allows some 65,000 mappings per process

Status CheckArgs(const PrepareArgs& args) {
  if (args.tokenizer == nullptr) return base::InvalidArgument("a tokenizer is required");
  if (args.inputs.empty()) return base::InvalidArgument("no input files are given");
  if (args.output_prefix.empty()) return base::InvalidArgument("no output prefix is given");
  if (args.rule == DocumentRule::kSeparator &&
      (args.separator.empty() || args.separator.find('\n') != std::string::npos)) {
    return base::InvalidArgument("the separator must be one line that is not empty");
  }
  if (args.rule == DocumentRule::kJsonLines && args.jsonl_key.empty()) {
    return base::InvalidArgument("the key of the text in each JSON line is missing");
  }
  for (const std::string_view ending : {".bin", ".idx"}) {
    const std::string path = args.output_prefix + std::string(ending);
    if (!args.overwrite && base::Exists(path)) {
      return base::Error(absl::StatusCode::kAlreadyExists,
                         "{}: exists already; choose another output prefix, or remove it first",
                         path);
    }
  }
  return OkStatus();
}

// The input files, mapped on first use. At most kMaxMapped are mapped at the same time; beyond that
// all are unmapped and mapped again as needed.
class Inputs {
 public:
  explicit Inputs(const std::vector<std::string>& paths) : paths_(paths), files_(paths.size()) {}

  StatusOr<std::string_view> Text(size_t file) {
    std::optional<MappedFile>& mapped = files_[file];
    if (!mapped) {
      if (num_mapped_ == kMaxMapped) {
        for (auto& other : files_) other.reset();
        num_mapped_ = 0;
      }
      ASSIGN_OR_RETURN(mapped, MappedFile::Open(paths_[file]));
      ++num_mapped_;
    }
    return mapped->view();
  }

 private:
  const std::vector<std::string>& paths_;
  std::vector<std::optional<MappedFile>> files_;
  size_t num_mapped_ = 0;
};

// Tokenizes documents into the writer and reports progress.
class Encoder {
 public:
  Encoder(const PrepareArgs& args, IndexedDatasetWriter* writer) : args_(args), writer_(writer) {}

  Status AddDocument(size_t file, std::string_view text, const DocumentSpan& span) {
    ids_.clear();
    Status status = Encode(text);
    if (status.ok() && !ids_.empty()) {
      if (args_.append_eod) ids_.push_back(args_.tokenizer->eod());
      status = writer_->AddSequence(ids_);
    }
    if (!status.ok()) {
      return base::Annotate(status, fmt::format("{}:{}", args_.inputs[file], span.line));
    }
    stats_.empty_documents += ids_.empty() ? 1 : 0;
    writer_->EndDocument();
    done_bytes_ += span.bytes;
    return OkStatus();
  }

  // Calls args.progress if kProgressBytes were encoded since the last call, or at the end.
  Status Report(bool at_end) {
    if (!at_end && done_bytes_ - reported_bytes_ < kProgressBytes) return OkStatus();
    reported_bytes_ = done_bytes_;
    const PrepareProgress progress = {.bytes_done = at_end ? stats_.bytes : done_bytes_,
                                      .bytes_total = stats_.bytes,
                                      .documents = writer_->num_documents(),
                                      .tokens = writer_->num_tokens()};
    if (args_.progress && !args_.progress(progress)) {
      return base::Error(absl::StatusCode::kCancelled, "{}: cancelled, nothing was written",
                         args_.output_prefix);
    }
    return OkStatus();
  }

  PrepareStats& stats() { return stats_; }

 private:
  Status Encode(std::string_view text) {
    if (args_.rule != DocumentRule::kJsonLines) return args_.tokenizer->Encode(text, &ids_);
    ASSIGN_OR_RETURN(const std::string value, JsonText(text, args_.jsonl_key));
    return args_.tokenizer->Encode(value, &ids_);
  }

  const PrepareArgs& args_;
  IndexedDatasetWriter* const writer_;
  PrepareStats stats_;
  std::vector<int32_t> ids_;
  int64_t done_bytes_ = 0;
  int64_t reported_bytes_ = 0;
};

Status EncodeInOrder(const PrepareArgs& args, Encoder* encoder) {
  for (size_t file = 0; file < args.inputs.size(); ++file) {
    ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::Open(args.inputs[file]));
    const std::string_view text = mapped.view();
    const auto encode = [&](const DocumentSpan& span) -> Status {
      const size_t offset = static_cast<size_t>(span.offset);
      const size_t bytes = static_cast<size_t>(span.bytes);
      RETURN_IF_ERROR(encoder->AddDocument(file, text.substr(offset, bytes), span));
      return encoder->Report(false);
    };
    RETURN_IF_ERROR(ScanDocuments(text, args.rule, args.separator, encode));
  }
  return OkStatus();
}

// Two passes: find all documents, then encode them in shuffled order.
Status EncodeShuffled(const PrepareArgs& args, Encoder* encoder) {
  struct Found {
    size_t file;
    DocumentSpan span;
  };
  Inputs inputs(args.inputs);
  std::vector<Found> found;
  for (size_t file = 0; file < args.inputs.size(); ++file) {
    ASSIGN_OR_RETURN(const std::string_view text, inputs.Text(file));
    const auto remember = [&](const DocumentSpan& span) -> Status {
      found.push_back({file, span});
      return OkStatus();
    };
    RETURN_IF_ERROR(ScanDocuments(text, args.rule, args.separator, remember));
  }
  std::vector<int64_t> order(found.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  ShuffleStream(args.seed).Shuffle(order);
  for (const int64_t number : order) {
    const Found& document = found[static_cast<size_t>(number)];
    ASSIGN_OR_RETURN(const std::string_view text, inputs.Text(document.file));
    const size_t offset = static_cast<size_t>(document.span.offset);
    const size_t bytes = static_cast<size_t>(document.span.bytes);
    if (offset + bytes > text.size()) {
      return base::DataLoss("{}: became shorter while it was read", args.inputs[document.file]);
    }
    RETURN_IF_ERROR(encoder->AddDocument(document.file, text.substr(offset, bytes), document.span));
    RETURN_IF_ERROR(encoder->Report(false));
  }
  return OkStatus();
}

}  // namespace

StatusOr<PrepareStats> Prepare(const PrepareArgs& args) {
  RETURN_IF_ERROR(CheckArgs(args));
  int64_t total_bytes = 0;
  for (const std::string& path : args.inputs) {
    ASSIGN_OR_RETURN(const MappedFile file,
                     MappedFile::Open(path));  // fail on a bad path before any work
    total_bytes += static_cast<int64_t>(file.size());
  }
  const std::string folder = std::filesystem::path(args.output_prefix).parent_path().string();
  if (!folder.empty()) RETURN_IF_ERROR(base::MakeDirs(folder));
  const TokenType type = TokenTypeForVocab(args.tokenizer->vocab_size());
  ASSIGN_OR_RETURN(const auto writer, IndexedDatasetWriter::Create(args.output_prefix, type));
  Encoder encoder(args, writer.get());
  PrepareStats& stats = encoder.stats();
  stats.bytes = total_bytes;
  RETURN_IF_ERROR(args.shuffle_documents ? EncodeShuffled(args, &encoder)
                                         : EncodeInOrder(args, &encoder));
  if (writer->num_tokens() == 0) {
    return base::InvalidArgument("the {} input files hold no text (first: {})", args.inputs.size(),
                                 args.inputs.front());
  }
  RETURN_IF_ERROR(encoder.Report(true));
  RETURN_IF_ERROR(writer->Finish());
  stats.files = static_cast<int64_t>(args.inputs.size());
  stats.documents = writer->num_documents();
  stats.tokens = writer->num_tokens();
  stats.token_type = type;
  return stats;
}

}  // namespace mt::data
