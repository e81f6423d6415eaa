// Pairs are kept with their counts and the words that hold them; the heap's entries may be stale,
// and one that is goes back with the pair's count of now. Of pairs of one count that of the lower
// ids wins, as in the tokenizers library.
#include "worker/data/tokenizer/bpe_trainer.h"

#include <algorithm>
#include <queue>
#include <set>
#include <unordered_map>
#include <utility>

#include "common/base/plain_text.h"
#include "worker/data/tokenizer/piece_counts.h"
#include "worker/data/tokenizer/unicode.h"

namespace mt::data {
namespace {

constexpr int64_t kBytes = 256;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kTokensPerReport = 256;

using Pair = uint64_t;
Pair PairOf(int32_t left, int32_t right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

// The words as ids, which merging shortens, and the pairs in them.
class Words {
 public:
  explicit Words(const std::vector<PieceCount>& pieces) {
    for (const PieceCount& piece : pieces) {
      const auto word = static_cast<uint32_t>(words_.size());
      Word& made = words_.emplace_back(Word{.count = piece.count});
      for (const char byte : piece.piece) made.ids.push_back(static_cast<unsigned char>(byte));
      for (size_t i = 0; i + 1 < made.ids.size(); ++i)
        Change(PairOf(made.ids[i], made.ids[i + 1]), piece.count, word);
    }
    for (const auto& [pair, info] : pairs_) heap_.push({.count = info.count, .pair = pair});
    changed_.clear();
  }

  struct Best {
    int64_t count;
    Pair pair;
    bool operator<(const Best& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };
  // The most frequent pair; a count of 0 where there is none.
  Best Take() {
    while (!heap_.empty()) {
      const Best best = heap_.top();
      heap_.pop();
      const int64_t now = pairs_.at(best.pair).count;
      if (now == best.count) return best;
      if (now > 0) heap_.push({.count = now, .pair = best.pair});
    }
    return {.count = 0, .pair = 0};
  }

  void Merge(Pair pair, int32_t result) {
    const auto left = static_cast<int32_t>(pair >> 32);
    const auto right = static_cast<int32_t>(pair & 0xFFFFFFFF);
    const std::vector<uint32_t> holders = std::move(pairs_.at(pair).words);
    for (const uint32_t word : holders) MergeIn(word, left, right, result);
    pairs_.at(pair) = {};
    for (const Pair grown : changed_) {
      const int64_t count = pairs_.at(grown).count;
      if (count > 0) heap_.push({.count = count, .pair = grown});
    }
    changed_.clear();
  }

 private:
  struct Word {
    int64_t count = 0;
    std::vector<int32_t> ids{};
  };
  struct Info {
    int64_t count = 0;
    std::vector<uint32_t> words{};  // those that hold or held it, each once in a row
  };

  void Change(Pair pair, int64_t by, uint32_t word) {
    Info& info = pairs_[pair];
    info.count += by;
    if (by < 0) return;
    if (info.words.empty() || info.words.back() != word) info.words.push_back(word);
    if (changed_.empty() || changed_.back() != pair) changed_.push_back(pair);
  }

  void MergeIn(uint32_t index, int32_t left, int32_t right, int32_t result) {
    Word& word = words_[index];
    std::vector<int32_t>& ids = word.ids;
    size_t to = 0;
    for (size_t from = 0; from < ids.size(); ++from, ++to) {
      if (ids[from] != left || from + 1 == ids.size() || ids[from + 1] != right) {
        ids[to] = ids[from];
        continue;
      }
      if (to > 0) {
        Change(PairOf(ids[to - 1], left), -word.count, index);
        Change(PairOf(ids[to - 1], result), word.count, index);
      }
      if (from + 2 < ids.size()) {
        Change(PairOf(right, ids[from + 2]), -word.count, index);
        Change(PairOf(result, ids[from + 2]), word.count, index);
      }
      ids[to] = result;
      ++from;
    }
    ids.resize(to);
  }

  std::vector<Word> words_;
  std::unordered_map<Pair, Info> pairs_;
  std::priority_queue<Best> heap_;
  std::vector<Pair> changed_;  // pairs whose count has grown since the last merge
};

Status CheckArgs(const TrainTokenizerArgs& args) {
  const auto num_specials = static_cast<int64_t>(args.specials.size());
  if (args.vocab_size < kBytes + num_specials || args.vocab_size > kMaxVocab) {
    return base::InvalidArgument(
        "a vocabulary of {}: expected {} (256 bytes and {} special tokens) ... {}", args.vocab_size,
        kBytes + num_specials, num_specials, kMaxVocab);
  }
  if (std::ranges::find(args.specials, "") != args.specials.end())
    return base::InvalidArgument("a special token without text");
  for (const std::string& special : args.specials) {
    if (ValidUtf8Prefix(special) != special.size())
      return base::InvalidArgument("a special token is not UTF-8: {}", base::CleanLine(special));
  }
  if (std::set<std::string>(args.specials.begin(), args.specials.end()).size() !=
      args.specials.size()) {
    return base::InvalidArgument("a special token is named twice");
  }
  return OkStatus();
}

}  // namespace

StatusOr<BpeParts> TrainTokenizer(const TrainTokenizerArgs& args,
                                  std::span<const std::string_view> texts) {
  RETURN_IF_ERROR(CheckArgs(args));
  ASSIGN_OR_RETURN(const Splitter splitter, Splitter::Create({args.pattern}));
  ASSIGN_OR_RETURN(const std::vector<PieceCount> pieces,
                   CountPieces(splitter, texts, args.threads));
  if (pieces.empty()) return base::InvalidArgument("the texts are empty");
  BpeParts parts;
  parts.name = "hf";
  parts.patterns = {args.pattern};
  std::vector<std::string>& tokens = parts.tables.tokens;
  for (int64_t byte = 0; byte < kBytes; ++byte)
    tokens.emplace_back(1, static_cast<char>(static_cast<unsigned char>(byte)));
  // Two pairs may spell one token, which then has one id.
  std::unordered_map<std::string, int32_t> by_text;
  const std::set<std::string> specials(args.specials.begin(), args.specials.end());
  const int64_t wanted = args.vocab_size - static_cast<int64_t>(args.specials.size());
  Words words(pieces);
  while (static_cast<int64_t>(tokens.size()) < wanted) {
    const auto num_tokens = static_cast<int64_t>(tokens.size());
    if (args.progress && num_tokens % kTokensPerReport == 0 && !args.progress(num_tokens))
      return base::Error(absl::StatusCode::kCancelled, "cancelled");
    const Words::Best best = words.Take();
    if (best.count < std::max<int64_t>(1, args.min_count)) break;
    const auto left = static_cast<int32_t>(best.pair >> 32);
    const auto right = static_cast<int32_t>(best.pair & 0xFFFFFFFF);
    const std::string text = tokens[static_cast<size_t>(left)] + tokens[static_cast<size_t>(right)];
    if (specials.contains(text)) continue;
    const auto [made, fresh] = by_text.emplace(text, static_cast<int32_t>(num_tokens));
    if (fresh) tokens.push_back(text);
    const BpeMerge merge = {.left = left, .right = right, .result = made->second};
    parts.tables.merges.push_back(merge);
    words.Merge(best.pair, merge.result);
  }
  auto id = static_cast<int32_t>(tokens.size());
  for (const std::string& special : args.specials)
    parts.named.push_back({.text = special, .id = id++});
  if (!args.specials.empty()) parts.eod = args.specials.front();
  return parts;
}

}  // namespace mt::data
