// Threads take the next part of the texts from a shared number, and their counts are added up.
#include "worker/data/tokenizer/piece_counts.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <unordered_map>
#include <utility>

#include "worker/data/tokenizer/unicode.h"

namespace mt::data {
namespace {

constexpr size_t kPartBytes = size_t{4} << 20;
constexpr size_t kMaxCountedBytes = 256;

using Counts = std::unordered_map<std::string_view, int64_t>;

// Where a part may end: behind a line, else between two code points.
size_t PartEnd(std::string_view text, size_t from) {
  size_t end = from + kPartBytes;
  if (end >= text.size()) return text.size();
  const size_t line = text.substr(from, end - from + 1).rfind('\n');
  if (line != std::string_view::npos && line > 0) return from + line + 1;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
  return end;
}

std::vector<std::string_view> PartsOf(std::span<const std::string_view> texts) {
  std::vector<std::string_view> parts;
  for (const std::string_view text : texts) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = PartEnd(text, at);
      parts.push_back(text.substr(at, end - at));
      at = end;
    }
  }
  return parts;
}

void Count(std::string_view piece, Counts* counts) {
  for (; !piece.empty(); piece.remove_prefix(std::min(piece.size(), kMaxCountedBytes)))
    ++(*counts)[piece.substr(0, kMaxCountedBytes)];
}

Status CountPart(const Splitter& splitter, std::string_view part, Counts* counts) {
  const auto count = [counts](std::string_view piece) {
    Count(piece, counts);
    return OkStatus();
  };
  while (!part.empty()) {
    const size_t valid = ValidUtf8Prefix(part);
    RETURN_IF_ERROR(splitter.Split(part.substr(0, valid), count));
    part.remove_prefix(valid);
    const size_t invalid = InvalidUtf8Prefix(part);
    Count(part.substr(0, invalid), counts);
    part.remove_prefix(invalid);
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::vector<PieceCount>> CountPieces(const Splitter& splitter,
                                              std::span<const std::string_view> texts,
                                              int threads) {
  const std::vector<std::string_view> parts = PartsOf(texts);
  const auto num_workers = static_cast<size_t>(std::max(1, threads));
  std::vector<Counts> counts(num_workers);
  std::vector<Status> statuses(num_workers);
  std::atomic<size_t> next = 0;
  const auto work = [&](size_t worker) {
    for (size_t i = next++; i < parts.size() && statuses[worker].ok(); i = next++)
      statuses[worker] = CountPart(splitter, parts[i], &counts[worker]);
  };
  std::vector<std::thread> workers;
  for (size_t i = 1; i < num_workers; ++i) workers.emplace_back(work, i);
  work(0);
  for (std::thread& worker : workers) worker.join();
  for (const Status& status : statuses) RETURN_IF_ERROR(status);
  for (size_t i = 1; i < num_workers; ++i) {
    for (const auto& [piece, count] : counts[i]) counts[0][piece] += count;
    counts[i] = {};
  }
  std::vector<PieceCount> all;
  all.reserve(counts[0].size());
  for (const auto& [piece, count] : counts[0]) all.push_back({.piece = piece, .count = count});
  std::ranges::sort(all, [](const PieceCount& a, const PieceCount& b) {
    return a.count != b.count ? a.count > b.count : a.piece < b.piece;
  });
  return all;
}

}  // namespace mt::data
