// The distinct pieces of a text as sequences of token ids: which pair of neighbours occurs most,
// and a merge of it in all of them. A merge costs what the pieces that hold the pair cost, however
// many others there are. Pure; belongs to one thread.
#pragma once

#include <array>
#include <cstdint>
#include <queue>
#include <span>
#include <unordered_map>
#include <vector>

#include "worker/data/tokenizer/training/piece_counts.h"

namespace mt::data {

class WordMerger {
 public:
  // Each byte of the pieces begins as its id, by `ids_of_bytes`.
  WordMerger(std::span<const PieceCount> pieces, const std::array<int32_t, 256>& ids_of_bytes);

  struct Candidate {
    int64_t count = 0;  // 0: no pair is left
    int32_t left = 0, right = 0;
  };
  // The most frequent pair, of equal ones that of the lower ids; it leaves the queue.
  Candidate Take();

  // Joins the pair to `result`, wherever it is.
  void Merge(const Candidate& taken, int32_t result);

 private:
  using Pair = uint64_t;  // left id, right id
  struct Word {
    int64_t count;
    size_t begin;  // in ids_
    uint32_t size;
    int32_t long_word;  // index, or -1
  };
  // A piece of many ids, in which the places of a pair are looked up, not searched.
  struct LongWord {
    std::vector<int32_t> ids{}, previous{}, next{};
    std::unordered_map<Pair, std::vector<int32_t>> places{};  // of the left id; some no longer hold
  };
  struct Holders {
    int64_t count = 0;              // of the pair, in all words
    std::vector<uint32_t> words{};  // those that hold it, or held it
  };
  struct Entry {
    int64_t count;
    Pair pair;
    bool operator<(const Entry& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  static Pair PairOf(int32_t left, int32_t right);
  void AddWord(const PieceCount& piece, const std::array<int32_t, 256>& ids_of_bytes);
  void Change(Pair pair, int64_t by, uint32_t word);
  void MergeShort(uint32_t word, Pair pair, int32_t result);
  void MergeLong(uint32_t word, Pair pair, int32_t result);
  void Queue();

  std::vector<Word> words_;
  std::vector<int32_t> ids_;  // of the short words, which merging moves together
  std::vector<LongWord> long_words_;
  std::unordered_map<Pair, Holders> pairs_;
  std::vector<Pair> grown_;  // pairs that are not queued yet
  std::priority_queue<Entry> queue_;
};

}  // namespace mt::data
