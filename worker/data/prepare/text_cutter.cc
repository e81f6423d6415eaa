// Text is read straight into the batch; what follows the last cut moves to the next one.
#include "worker/data/prepare/text_cutter.h"

#include <algorithm>
#include <utility>

namespace mt::data {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

std::string_view WithoutReturn(std::string_view line) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return line;
}

}  // namespace

TextCutter::TextCutter(CutOptions options, const InputPosition& from)
    : options_(std::move(options)), position_(from), json_(options_.jsonl_key) {
  for (int64_t i = 0; i < from.file; ++i)
    bytes_of_files_before_ += options_.input_bytes[static_cast<size_t>(i)];
}

Status TextCutter::OpenNext() {
  const std::string& path = options_.inputs[static_cast<size_t>(position_.file)];
  ASSIGN_OR_RETURN(input_, TextInput::Open(path));
  at_end_ = false;
  if (position_.offset > 0) RETURN_IF_ERROR(input_->Skip(position_.offset));
  if (path != kStandardInput || !options_.judge) return OkStatus();
  RETURN_IF_ERROR(Fill(&carry_, kJudgedBytes));
  return options_.judge(carry_);
}

Status TextCutter::Fill(std::string* text, size_t bytes) {
  size_t have = text->size();
  text->resize(std::max(have, bytes));
  while (have < bytes && !at_end_) {
    StatusOr<size_t> got = input_->Read(std::span(*text).subspan(have));
    if (!got.ok()) return got.status();
    at_end_ = *got == 0;
    have += *got;
  }
  text->resize(have);
  return OkStatus();
}

StatusOr<bool> TextCutter::Next(TextBatch* batch) {
  batch->text.clear();
  batch->pieces.clear();
  batch->tokens.clear();
  batch->json = options_.rule == DocumentRule::kJsonLines;
  batch->status = OkStatus();
  if (input_ == nullptr) {
    if (position_.file == std::ssize(options_.inputs)) return false;
    RETURN_IF_ERROR(OpenNext());
  }
  batch->file = static_cast<size_t>(position_.file);
  if (long_line_) {
    RETURN_IF_ERROR(NextOfLongLine(batch));
    FinishBatch(batch);
    return true;
  }
  batch->text.swap(carry_);
  carry_.clear();
  size_t consumed = 0;
  for (size_t want = FirstRead();; want = std::max(want, batch->text.size()) * 2) {
    RETURN_IF_ERROR(Fill(&batch->text, want));
    consumed = Cut(batch);
    if (consumed > 0 || at_end_ || long_line_) break;
    if (want >= options_.most_document_bytes)
      return TooLong(position_.document_line, position_.offset);
  }
  carry_.assign(batch->text, consumed);
  position_.offset += static_cast<int64_t>(consumed);
  FinishBatch(batch);
  return true;
}

// A small file needs no room for a large one.
size_t TextCutter::FirstRead() const {
  constexpr int64_t kLeast = 4096;
  const auto file = static_cast<size_t>(position_.file);
  if (options_.inputs[file] == kStandardInput) return options_.batch_bytes;
  const int64_t whole = std::max(kLeast, options_.input_bytes[file] + 1);
  return std::min(options_.batch_bytes, static_cast<size_t>(whole));
}

// Also moves on to the next file.
void TextCutter::FinishBatch(TextBatch* batch) {
  batch->file_bytes = bytes_of_files_before_ + input_->file_bytes_read();
  if (at_end_ && carry_.empty() && !long_line_) {
    bytes_of_files_before_ += options_.input_bytes[batch->file];
    position_ = {.file = position_.file + 1};
    input_ = nullptr;
  }
  batch->next = position_;
  batch->can_resume = !long_line_;
}

size_t TextCutter::Cut(TextBatch* batch) {
  switch (options_.rule) {
    case DocumentRule::kWholeFile:
      return CutWholeFile(batch);
    case DocumentRule::kSeparator:
      return CutSeparated(batch);
    case DocumentRule::kJsonLines:
      break;
  }
  return CutJsonLines(batch);
}

void TextCutter::EndDocument(TextBatch* batch, size_t begin, size_t end) {
  batch->pieces.push_back({.begin = begin,
                           .bytes = end - begin,
                           .begins = !position_.open,
                           .ends = true,
                           .line = position_.document_line,
                           .offset = position_.offset + static_cast<int64_t>(begin)});
  position_.open = false;
}

size_t TextCutter::CutPart(TextBatch* batch, size_t limit) {
  const std::string_view text = batch->text;
  const size_t end = LastCut(text.substr(0, limit), options_.cuts);
  if (end == 0) return 0;
  batch->pieces.push_back({.bytes = end,
                           .begins = !position_.open,
                           .ends = false,
                           .line = position_.document_line,
                           .offset = position_.offset});
  position_.open = true;
  position_.mid_line = text[end - 1] != '\n';
  position_.line += std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(end), '\n');
  return end;
}

size_t TextCutter::CutWholeFile(TextBatch* batch) {
  if (!at_end_) return CutPart(batch, batch->text.size());
  EndDocument(batch, 0, batch->text.size());
  return batch->text.size();
}

size_t TextCutter::CutSeparated(TextBatch* batch) {
  const std::string_view text = batch->text;
  size_t begin = 0;  // of the document
  size_t at = 0;     // of the line
  bool mid_line = position_.mid_line;
  int64_t line_number = position_.line;
  const auto is_separator = [&](std::string_view line) {
    return !mid_line && WithoutReturn(line) == options_.separator;
  };
  const auto end_document = [&](size_t end, size_t next) {
    if (end > begin || position_.open) EndDocument(batch, begin, end);
    begin = next;
    position_.document_line = line_number + 1;
    position_.line = line_number + 1;
    position_.mid_line = false;
  };
  for (size_t newline = text.find('\n'); newline != std::string_view::npos;
       newline = text.find('\n', at)) {
    if (is_separator(text.substr(at, newline - at))) end_document(at, newline + 1);
    mid_line = false;
    at = newline + 1;
    ++line_number;
  }
  const std::string_view rest = text.substr(at);
  if (at_end_) {
    end_document(is_separator(rest) ? at : text.size(), text.size());
    return text.size();
  }
  if (begin > 0) return begin;
  // The line that is not all here may be the separator, unless it is longer already.
  const bool plain = mid_line || rest.size() > options_.separator.size() + 1;
  return CutPart(batch, plain ? text.size() : at);
}

size_t TextCutter::CutJsonLines(TextBatch* batch) {
  const std::string_view text = batch->text;
  const size_t last = text.rfind('\n');
  if (last == std::string_view::npos && !at_end_) {
    long_line_ = true;
    json_.Begin();
    return 0;
  }
  const size_t end = at_end_ ? text.size() : last + 1;
  for (size_t at = 0; at < end; ++position_.line) {
    const size_t newline = std::min(text.find('\n', at), end);
    const std::string_view line = WithoutReturn(text.substr(at, newline - at));
    if (line.find_first_not_of(kBlank) != std::string_view::npos)
      batch->pieces.push_back({.begin = at, .bytes = line.size(), .line = position_.line});
    at = newline + 1;
  }
  return end;
}

StatusOr<bool> TextCutter::FeedLongLine() {
  std::string raw;
  raw.swap(carry_);
  RETURN_IF_ERROR(Fill(&raw, options_.batch_bytes));
  const size_t newline = std::min(raw.find('\n'), raw.size());
  const Status status = json_.Feed(std::string_view(raw).substr(0, newline), &long_text_);
  if (!status.ok()) return AtLine(status, position_.line);
  const bool found = newline < raw.size();
  position_.offset += static_cast<int64_t>(found ? newline + 1 : raw.size());
  if (!found && !at_end_) return false;
  carry_.assign(raw, std::min(newline + 1, raw.size()));
  return true;
}

Status TextCutter::NextOfLongLine(TextBatch* batch) {
  batch->json = false;
  for (;;) {
    ASSIGN_OR_RETURN(const bool ended, FeedLongLine());
    position_.document_line = position_.line;
    if (ended) {
      long_line_ = false;
      batch->text.swap(long_text_);
      long_text_.clear();
      if (!json_.blank()) {
        const Status status = json_.End();
        if (!status.ok()) return AtLine(status, position_.line);
        EndDocument(batch, 0, batch->text.size());
        batch->pieces.back().offset = long_done_;
      }
      long_done_ = 0;
      ++position_.line;
      return OkStatus();
    }
    const size_t end = LastCut(long_text_, options_.cuts);
    if (end > 0) {
      batch->text.assign(long_text_, 0, end);
      long_text_.erase(0, end);
      batch->pieces.push_back({.bytes = end,
                               .begins = !position_.open,
                               .ends = false,
                               .line = position_.line,
                               .offset = long_done_});
      long_done_ += static_cast<int64_t>(end);
      position_.open = true;
      return OkStatus();
    }
    if (long_text_.size() > options_.most_document_bytes)
      return TooLong(position_.line, long_done_);
  }
}

Status TextCutter::TooLong(int64_t line, int64_t offset) const {
  const bool whole = options_.cuts.rule == CutRule::kNowhere;
  const Status error = ErrorAt(
      offset, fmt::format("the document goes on for more than {} MiB and {}: divide it into "
                          "documents, with --separator or as lines of JSON",
                          options_.most_document_bytes >> 20,
                          whole ? fmt::format("tokenizer {} has to see all of it at once",
                                              options_.tokenizer)
                                : fmt::format("has no place where its tokens by {} surely end",
                                              options_.tokenizer)));
  return AtLine(error, line);
}

Status TextCutter::AtLine(const Status& status, int64_t line) const {
  return base::Annotate(
      status, fmt::format("{}:{}", options_.inputs[static_cast<size_t>(position_.file)], line));
}

}  // namespace mt::data
