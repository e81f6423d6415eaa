// Threads take the next part of the texts from a shared number, and their counts are added up.
#include "worker/data/tokenizer/training/piece_counts.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <unordered_map>
#include <utility>

#include "worker/data/tokenizer/bpe_model.h"
#include "worker/data/tokenizer/fast_splitters.h"
#include "worker/data/tokenizer/splitter.h"
#include "worker/data/tokenizer/unicode.h"

namespace mt::data {
namespace {

constexpr size_t kPartBytes = size_t{4} << 20;

using Counts = std::unordered_map<std::string_view, int64_t>;

struct Part {
  const TrainingText* text;
  size_t begin, end;
};

bool IsAscii(char c) { return static_cast<unsigned char>(c) < 0x80; }
bool IsAsciiWord(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Behind an ASCII letter or digit and before an ASCII character that is neither: in all patterns
// with a splitter of our own a piece ends there, and no piece depends on what is beyond.
size_t PartEnd(std::string_view text, size_t begin) {
  for (size_t i = begin + kPartBytes; i < text.size(); ++i) {
    if (IsAsciiWord(text[i - 1]) && IsAscii(text[i]) && !IsAsciiWord(text[i])) return i;
  }
  return text.size();
}

std::vector<Part> PartsOf(std::span<const TrainingText> texts, bool divide) {
  std::vector<Part> parts;
  for (const TrainingText& text : texts) {
    for (size_t at = 0; at < text.text.size();) {
      const size_t end = divide ? PartEnd(text.text, at) : text.text.size();
      parts.push_back({.text = &text, .begin = at, .end = end});
      at = end;
    }
  }
  return parts;
}

Status CountPart(const Splitter& splitter, const Part& part, Counts* counts) {
  const std::string_view text = part.text->text;
  const auto count = [&](std::string_view piece) -> Status {
    if (piece.size() > kMaxPieceBytes) {
      return base::InvalidArgument(
          "{}: the piece of text at offset {} has {} bytes, more than the {} that a tokenizer "
          "takes: is this text?",
          part.text->name, piece.data() - text.data(), piece.size(), kMaxPieceBytes);
    }
    ++(*counts)[piece];
    return OkStatus();
  };
  std::string_view left = text.substr(part.begin, part.end - part.begin);
  while (!left.empty()) {
    const size_t valid = ValidUtf8Prefix(left);
    RETURN_IF_ERROR(splitter.Split(left.substr(0, valid), count));
    left.remove_prefix(valid);
    const size_t invalid = InvalidUtf8Prefix(left);
    if (invalid > 0) RETURN_IF_ERROR(count(left.substr(0, invalid)));
    left.remove_prefix(invalid);
  }
  return OkStatus();
}

// What one thread has done.
struct Share {
  Counts counts{};
  Status status = OkStatus();
  size_t failed_part = 0;  // where status is an error
};

void CountParts(const Splitter& splitter, const std::vector<Part>& parts, std::atomic<size_t>* next,
                Share* share) {
  for (size_t i = (*next)++; i < parts.size(); i = (*next)++) {
    share->status = CountPart(splitter, parts[i], &share->counts);
    if (share->status.ok()) continue;
    share->failed_part = i;
    return;
  }
}

}  // namespace

StatusOr<std::vector<PieceCount>> CountPieces(const std::string& pattern,
                                              std::span<const TrainingText> texts, int threads) {
  ASSIGN_OR_RETURN(const Splitter splitter, Splitter::Create({pattern}));
  const std::vector<Part> parts = PartsOf(texts, FindFastSplitter(pattern) != nullptr);
  std::vector<Share> shares(static_cast<size_t>(std::max(1, threads)));
  std::atomic<size_t> next = 0;
  std::vector<std::thread> workers;
  for (size_t i = 1; i < shares.size(); ++i)
    workers.emplace_back([&, i] { CountParts(splitter, parts, &next, &shares[i]); });
  CountParts(splitter, parts, &next, shares.data());
  for (std::thread& worker : workers) worker.join();
  // The first part's error, whoever met it.
  const Share* failed = nullptr;
  for (const Share& share : shares) {
    if (!share.status.ok() && (failed == nullptr || share.failed_part < failed->failed_part))
      failed = &share;
  }
  if (failed != nullptr) return failed->status;
  Counts& counts = shares.front().counts;
  for (size_t i = 1; i < shares.size(); ++i) {
    for (const auto& [piece, count] : shares[i].counts) counts[piece] += count;
    shares[i].counts = {};
  }
  std::vector<PieceCount> all;
  all.reserve(counts.size());
  for (const auto& [piece, count] : counts) all.push_back({.piece = piece, .count = count});
  std::ranges::sort(all, [](const PieceCount& a, const PieceCount& b) {
    return a.count != b.count ? a.count > b.count : a.piece < b.piece;
  });
  return all;
}

}  // namespace mt::data
