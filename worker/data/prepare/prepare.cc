// Reading, encoding and writing run side by side (BatchPipeline); what is written is recorded
// (PartialDataset). A shuffle is a second pass over the tokens.
#include "worker/data/prepare/prepare.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>

#include "common/base/files.h"
#include "worker/data/prepare/batch_pipeline.h"
#include "worker/data/prepare/input_list.h"
#include "worker/data/prepare/partial_dataset.h"
#include "worker/data/tokenizer/record.h"
#include "worker/data/tokenizer/unicode.h"

namespace mt::data {

constinit const std::string_view kOneDocument =
    "all text is one document, which data.split divides by tokens alone: --separator TEXT ends a "
    "document at each line TEXT, --jsonl-key KEY takes one of each line of JSON, each --input file "
    "is one; --allow-one-document takes it as it is, for jobs with data.split_by: tokens";

namespace {

// The record and what a run that was killed while it wrote one has left of its draft.
void RemoveRecord(const std::filesystem::path& record) {
  std::error_code ignored;
  std::filesystem::remove(record, ignored);
  const std::string draft = record.filename().string() + ".tmp.";
  const std::filesystem::path folder = record.has_parent_path() ? record.parent_path() : ".";
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().filename().string().starts_with(draft))
      std::filesystem::remove(entry.path(), ignored);
  }
}

constexpr int64_t kProgressBytes = int64_t{4} << 20;
constexpr int kMostThreads = 16;

Status CheckArgs(const PrepareArgs& args) {
  if (args.tokenizer == nullptr) return base::InvalidArgument("a tokenizer is required");
  if (args.inputs.empty()) return base::InvalidArgument("no input files are given");
  if (args.output_prefix.empty()) return base::InvalidArgument("no output prefix is given");
  if (args.append_eod && args.tokenizer->eod() == kNoEod) {
    return base::InvalidArgument(
        "this tokenizer names no end-of-document token that could be appended: name it (--eod)");
  }
  if (args.threads < 0) return base::InvalidArgument("{} threads", args.threads);
  if (args.rule == DocumentRule::kSeparator &&
      (args.separator.empty() || args.separator.find('\n') != std::string::npos)) {
    return base::InvalidArgument("the separator must be one line that is not empty");
  }
  if (args.rule == DocumentRule::kJsonLines && args.jsonl_key.empty()) {
    return base::InvalidArgument("the key of the text in each JSON line is missing");
  }
  return OkStatus();
}

Status CheckOutput(const PrepareArgs& args) {
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

// A run that is repeated would read what it wrote.
Status CheckApart(const PrepareArgs& args) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path out =
      fs::weakly_canonical(fs::absolute(args.output_prefix), ignored).parent_path();
  for (const std::string& input : args.inputs) {
    if (!fs::is_directory(input, ignored)) continue;
    const fs::path in = fs::weakly_canonical(fs::absolute(input), ignored);
    if (std::mismatch(in.begin(), in.end(), out.begin(), out.end()).first != in.end()) continue;
    return base::InvalidArgument(
        "--output {} lies in the input folder {} and would be read as text", args.output_prefix,
        input);
  }
  return OkStatus();
}

// All that the result depends on, in words that a message can show.
std::string OptionsText(const PrepareArgs& args) {
  const Tokenizer& tokenizer = *args.tokenizer;
  std::string text =
      fmt::format("tokenizer {} of {} ids", tokenizer.name(), tokenizer.vocab_size());
  if (!tokenizer.digest().empty()) text += " (" + tokenizer.digest() + ")";
  // Of other tables the same files make other ids.
  if (tokenizer.name() == "gpt2_bpe" || tokenizer.name() == "hf")
    text += fmt::format(", Unicode {}", kUnicodeVersion);
  if (args.rule == DocumentRule::kSeparator) text += ", separator " + args.separator;
  if (args.rule == DocumentRule::kJsonLines) text += ", JSON key " + args.jsonl_key;
  if (args.append_eod) text += fmt::format(", EOD {}", tokenizer.eod());
  if (args.shuffle_documents) text += fmt::format(", shuffled with seed {}", args.seed);
  return text;
}

int Threads(const PrepareArgs& args) {
  if (args.threads > 0) return args.threads;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMostThreads);
}

// One conversion: its inputs, what it has made, and how far it is.
class Conversion {
 public:
  Conversion(const PrepareArgs& args, InputList inputs)
      : args_(args),
        inputs_(std::move(inputs)),
        type_(TokenTypeForVocab(args.tokenizer->vocab_size())) {}

  StatusOr<PrepareStats> Run() {
    RETURN_IF_ERROR(Open());
    const Status status = Make();
    if (absl::IsInvalidArgument(status) && data_->record().phase == Phase::kConsent) {
      return base::InvalidArgument(
          "{}; its tokens are kept: the same command with --allow-one-document publishes them at "
          "once, another one for this output begins anew",
          base::Message(status));
    }
    if (!status.ok()) {
      const bool kept = !absl::IsInvalidArgument(status) && !absl::IsDataLoss(status) &&
                        !inputs_.has_standard_input && data_->record().tokens > 0;
      if (!kept) data_->Discard();
      return Explain(status, kept);
    }
    const PrepareRecord& record = data_->record();
    return PrepareStats{.files = std::ssize(inputs_.paths),
                        .bytes = std::max(inputs_.total_bytes, bytes_done_),
                        .documents = record.documents,
                        .empty_documents = record.empty_documents,
                        .tokens = record.tokens,
                        .resumed = resumed_,
                        .token_type = type_};
  }

 private:
  using Phase = PrepareRecord::Phase;

  Status Open() {
    const PartialDataset::Args args = {
        .prefix = args_.output_prefix,
        .type = type_,
        .made_of = {.options = OptionsText(args_), .inputs = inputs_.digest},
        .resumable = !inputs_.has_standard_input,
        .restart = args_.restart,
        .record_every_bytes = args_.record_every_bytes};
    ASSIGN_OR_RETURN(data_, PartialDataset::Open(args));
    const PrepareRecord& record = data_->record();
    resumed_ = record.tokens > 0;
    for (int64_t i = 0; i < std::min(record.position.file, std::ssize(inputs_.paths)); ++i)
      bytes_before_ += inputs_.bytes[static_cast<size_t>(i)];
    bytes_before_ = std::min(bytes_before_ + record.position.offset, inputs_.total_bytes);
    if (record.phase == Phase::kPublish) return OkStatus();
    Status output = CheckOutput(args_);
    if (!output.ok() && !resumed_) data_->Discard();
    return output;
  }

  Status Make() {
    if (data_->record().phase == Phase::kEncode) RETURN_IF_ERROR(Encode());
    const PrepareRecord& record = data_->record();
    if (record.tokens == 0) {
      return base::InvalidArgument("the {} input files hold no text (first: {})",
                                   inputs_.paths.size(), inputs_.paths.front());
    }
    // What is being put in another order or moved into place was asked for as it is.
    const bool asked = record.phase == Phase::kReorder || record.phase == Phase::kPublish;
    const bool one = record.documents - record.empty_documents == 1;
    if (args_.refuse_one_document && one && !asked) {
      if (!inputs_.has_standard_input) RETURN_IF_ERROR(data_->AwaitConsent());
      return base::InvalidArgument("{}", kOneDocument);
    }
    if (args_.shuffle_documents && record.phase != Phase::kPublish) {
      const DocumentOrder order(record.documents, args_.seed, args_.most_listed_documents);
      RETURN_IF_ERROR(data_->Reorder([&](int64_t place) { return order.At(place); },
                                     [&](int64_t bytes) { return ReportShuffled(bytes); }));
    }
    if (args_.progress && !Report(inputs_.total_bytes))
      return base::Error(absl::StatusCode::kCancelled, "cancelled");
    // A crash may leave data without a record, not with that of the data before.
    RemoveRecord(RecordPath(args_.output_prefix));
    RETURN_IF_ERROR(data_->Publish());
    RETURN_IF_ERROR(WriteTokenizerRecord(args_.output_prefix, RecordOfTokenizer(*args_.tokenizer)));
    if (args_.tokenizer_files.type.empty()) return OkStatus();
    return KeepTokenizer(args_.tokenizer_files, args_.tokenizer->digest(),
                         std::filesystem::path(args_.output_prefix).parent_path().string());
  }

  Status Encode() {
    const BatchPipeline::Args args = {.cut = {.inputs = inputs_.paths,
                                              .input_bytes = inputs_.bytes,
                                              .rule = args_.rule,
                                              .separator = args_.separator,
                                              .jsonl_key = args_.jsonl_key,
                                              .tokenizer = std::string(args_.tokenizer->name()),
                                              .cuts = args_.tokenizer->cuts(),
                                              .batch_bytes = args_.batch_bytes,
                                              .most_document_bytes = args_.most_document_bytes,
                                              .judge = args_.judge},
                                      .from = data_->record().position,
                                      .encode = {.tokenizer = args_.tokenizer,
                                                 .token_type = type_,
                                                 .append_eod = args_.append_eod,
                                                 .jsonl_key = args_.jsonl_key,
                                                 .usual_bytes = 2 * args_.batch_bytes},
                                      .threads = Threads(args_)};
    return BatchPipeline(args).Run([&](TextBatch& batch) { return Take(batch); });
  }

  // Writes one batch.
  Status Take(TextBatch& batch) {
    DropLonelyEod(&batch);
    int64_t count = 0;
    for (const TextPiece& piece : batch.pieces) count += piece.tokens;
    RETURN_IF_ERROR(data_->AddTokens(batch.tokens, count));
    for (const TextPiece& piece : batch.pieces) {
      const Status status = data_->AddToDocument(piece.tokens);
      if (!status.ok()) {
        return base::Annotate(status, fmt::format("{}:{}", inputs_.paths[batch.file], piece.line));
      }
      if (piece.ends) RETURN_IF_ERROR(data_->EndDocument());
    }
    if (batch.can_resume) RETURN_IF_ERROR(data_->Reached(batch.next));
    const bool due = batch.file_bytes - bytes_done_ >= kProgressBytes;
    if (!due || !args_.progress || Report(batch.file_bytes)) return OkStatus();
    return base::Error(absl::StatusCode::kCancelled, "cancelled");
  }

  // A document that is all white space to the tokenizer has no EOD, but the encoder of its last
  // piece cannot know what the pieces before gave.
  void DropLonelyEod(TextBatch* batch) const {
    if (!args_.append_eod || batch->pieces.empty() || data_->record().open_tokens > 0) return;
    TextPiece& first = batch->pieces.front();
    if (first.begins || !first.ends || first.tokens != 1) return;
    first.tokens = 0;
    batch->tokens.erase(0, static_cast<size_t>(SizeOf(type_)));
  }

  bool Report(int64_t bytes_done) {
    bytes_done_ = bytes_done;
    return args_.progress({.bytes_done = bytes_done,
                           .bytes_total = inputs_.has_standard_input ? 0 : inputs_.total_bytes,
                           .bytes_before = bytes_before_,
                           .documents = data_->record().documents,
                           .tokens = data_->record().tokens});
  }

  bool ReportShuffled(int64_t bytes_done) const {
    const PrepareRecord& record = data_->record();
    return !args_.progress || args_.progress({.bytes_done = bytes_done,
                                              .bytes_total = record.tokens * SizeOf(type_),
                                              .documents = record.placed,
                                              .tokens = record.tokens,
                                              .shuffling = true});
  }

  static Status Explain(const Status& status, bool kept) {
    return base::Error(
        status.code(), "{}; {}", base::Message(status),
        kept ? "the same command goes on with what has been done" : "nothing was written");
  }

  const PrepareArgs& args_;
  const InputList inputs_;
  const TokenType type_;
  std::unique_ptr<PartialDataset> data_;
  int64_t bytes_before_ = 0;
  int64_t bytes_done_ = 0;
  bool resumed_ = false;
};

}  // namespace

StatusOr<PrepareStats> Prepare(const PrepareArgs& args) {
  RETURN_IF_ERROR(CheckArgs(args));
  RETURN_IF_ERROR(CheckApart(args));
  ASSIGN_OR_RETURN(InputList inputs, ListInputs(args.inputs));
  if (!base::Exists(args.output_prefix + ".prepare.json")) RETURN_IF_ERROR(CheckOutput(args));
  const std::string folder = std::filesystem::path(args.output_prefix).parent_path().string();
  if (!folder.empty()) RETURN_IF_ERROR(base::MakeDirs(folder));
  return Conversion(args, std::move(inputs)).Run();
}

}  // namespace mt::data
