// Entries of the queue may be stale: one whose count is no longer the pair's goes back with that
// count. What a token spells is merged alike wherever it becomes one, since nothing is merged
// across its borders: so one pair makes it, in one merge, and a pair grows in the merge that makes
// the later of its tokens alone.
#include "worker/data/tokenizer/training/word_merger.h"

#include <algorithm>
#include <utility>

namespace mt::data {
namespace {

// A longer word is searched for each of the pairs that it ever held: a square of its length.
constexpr size_t kShortWordBytes = 256;
constexpr int32_t kNowhere = -1;

}  // namespace

WordMerger::Pair WordMerger::PairOf(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

WordMerger::WordMerger(std::span<const PieceCount> pieces,
                       const std::array<int32_t, 256>& ids_of_bytes) {
  words_.reserve(pieces.size());
  for (const PieceCount& piece : pieces) AddWord(piece, ids_of_bytes);
  Queue();
}

void WordMerger::AddWord(const PieceCount& piece, const std::array<int32_t, 256>& ids_of_bytes) {
  const auto word = static_cast<uint32_t>(words_.size());
  const auto size = static_cast<uint32_t>(piece.piece.size());
  const bool is_long = size > kShortWordBytes;
  words_.push_back({.count = piece.count,
                    .begin = ids_.size(),
                    .size = size,
                    .long_word = is_long ? static_cast<int32_t>(long_words_.size()) : kNowhere});
  std::vector<int32_t>& ids = is_long ? long_words_.emplace_back().ids : ids_;
  const size_t begin = ids.size();
  for (const char byte : piece.piece) ids.push_back(ids_of_bytes[static_cast<unsigned char>(byte)]);
  for (size_t i = begin; i + 1 < ids.size(); ++i)
    Change(PairOf(ids[i], ids[i + 1]), piece.count, word);
  if (!is_long) return;
  LongWord& made = long_words_.back();
  const auto last = static_cast<int32_t>(size) - 1;
  for (int32_t i = 0; i <= last; ++i) {
    made.previous.push_back(i - 1);
    made.next.push_back(i < last ? i + 1 : kNowhere);
    const auto at = static_cast<size_t>(i);
    if (i < last) made.places[PairOf(ids[at], ids[at + 1])].push_back(i);
  }
}

void WordMerger::Change(Pair pair, int64_t by, uint32_t word) {
  Holders& holders = pairs_[pair];
  holders.count += by;
  if (by < 0) return;
  // All changes of a word come in a row.
  if (holders.words.empty()) grown_.push_back(pair);
  if (holders.words.empty() || holders.words.back() != word) holders.words.push_back(word);
}

void WordMerger::Queue() {
  for (const Pair pair : grown_) {
    const int64_t count = pairs_.at(pair).count;
    if (count > 0) queue_.push({.count = count, .pair = pair});
  }
  grown_.clear();
}

WordMerger::Candidate WordMerger::Take() {
  while (!queue_.empty()) {
    Entry entry = queue_.top();
    queue_.pop();
    const int64_t now = pairs_.at(entry.pair).count;
    if (now == entry.count) {
      return {.count = now,
              .left = static_cast<int32_t>(entry.pair >> 32),
              .right = static_cast<int32_t>(entry.pair & 0xFFFFFFFF)};
    }
    entry.count = now;
    if (now > 0) queue_.push(entry);
  }
  return {};
}

void WordMerger::Merge(const Candidate& taken, int32_t result) {
  const Pair pair = PairOf(taken.left, taken.right);
  const std::vector<uint32_t> words = std::exchange(pairs_.at(pair).words, {});
  for (const uint32_t word : words) {
    if (words_[word].long_word == kNowhere) {
      MergeShort(word, pair, result);
    } else {
      MergeLong(word, pair, result);
    }
  }
  pairs_.at(pair).count = 0;
  Queue();
}

void WordMerger::MergeShort(uint32_t word, Pair pair, int32_t result) {
  const auto left = static_cast<int32_t>(pair >> 32);
  const auto right = static_cast<int32_t>(pair & 0xFFFFFFFF);
  const int64_t count = words_[word].count;
  const std::span<int32_t> ids(ids_.data() + words_[word].begin, words_[word].size);
  size_t to = 0;
  for (size_t from = 0; from < ids.size(); ++from, ++to) {
    if (ids[from] != left || from + 1 == ids.size() || ids[from + 1] != right) {
      ids[to] = ids[from];
      continue;
    }
    if (to > 0) {
      Change(PairOf(ids[to - 1], left), -count, word);
      Change(PairOf(ids[to - 1], result), count, word);
    }
    if (from + 2 < ids.size()) {
      Change(PairOf(right, ids[from + 2]), -count, word);
      Change(PairOf(result, ids[from + 2]), count, word);
    }
    ids[to] = result;
    ++from;
  }
  words_[word].size = static_cast<uint32_t>(to);
}

void WordMerger::MergeLong(uint32_t word, Pair pair, int32_t result) {
  const auto left = static_cast<int32_t>(pair >> 32);
  const auto right = static_cast<int32_t>(pair & 0xFFFFFFFF);
  const int64_t count = words_[word].count;
  LongWord& whole = long_words_[static_cast<size_t>(words_[word].long_word)];
  const auto found = whole.places.find(pair);
  if (found == whole.places.end()) return;
  std::vector<int32_t> places = std::move(found->second);
  whole.places.erase(found);
  std::ranges::sort(places);  // of overlapping pairs the first is merged
  const auto id = [&](int32_t place) -> int32_t& { return whole.ids[static_cast<size_t>(place)]; };
  const auto next = [&](int32_t place) -> int32_t& {
    return whole.next[static_cast<size_t>(place)];
  };
  const auto replace = [&](Pair old, Pair fresh, int32_t place) {
    Change(old, -count, word);
    Change(fresh, count, word);
    whole.places[fresh].push_back(place);
  };
  for (const int32_t place : places) {
    const int32_t second = next(place);
    if (id(place) != left || second == kNowhere || id(second) != right) continue;
    const int32_t before = whole.previous[static_cast<size_t>(place)];
    const int32_t behind = next(second);
    if (before != kNowhere) replace(PairOf(id(before), left), PairOf(id(before), result), before);
    if (behind != kNowhere) {
      replace(PairOf(right, id(behind)), PairOf(result, id(behind)), place);
      whole.previous[static_cast<size_t>(behind)] = place;
    }
    id(place) = result;
    id(second) = kNowhere;
    next(place) = behind;
  }
}

}  // namespace mt::data
