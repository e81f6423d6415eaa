// Ids decide which of equally frequent pairs is merged first, so they are given as the tokenizers
// library gives them: special tokens, then bytes by the characters that spell them in the file,
// then what merging makes. A text that is made twice, or that is a special token, keeps its id.
#include "worker/data/tokenizer/training/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>
#include <utility>

#include "common/base/plain_text.h"
#include "worker/data/tokenizer/byte_alphabet.h"
#include "worker/data/tokenizer/training/word_merger.h"
#include "worker/data/tokenizer/unicode.h"

namespace mt::data {
namespace {

constexpr int64_t kBytes = 256;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kTokensPerReport = 256;

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

// The vocabulary as it grows.
class Tokens {
 public:
  explicit Tokens(BpeParts* parts) : parts_(parts) {}

  void AddSpecial(const std::string& text) {
    const auto id = static_cast<int32_t>(texts().size());
    ids_.emplace(text, id);
    parts_->named.push_back({.text = text, .id = id});
    // Its bytes are a token for merges, too, where the file spells them as the text.
    texts().push_back(BytesOfAlphabet(text) == text ? text : "");
  }

  // The id of the token, a new one if need be.
  StatusOr<int32_t> IdOf(const std::string& bytes) {
    const auto [made, fresh] =
        ids_.emplace(AlphabetOfBytes(bytes), static_cast<int32_t>(texts().size()));
    if (fresh) texts().push_back(bytes);
    if (texts()[static_cast<size_t>(made->second)] == bytes) return made->second;
    return base::InvalidArgument(
        "the special token \"{}\" is how a tokenizer.json writes the token \"{}\": choose another "
        "text for it",
        base::CleanLine(made->first), base::CleanLine(bytes));
  }

  int64_t size() const { return static_cast<int64_t>(parts_->tables.tokens.size()); }
  const std::string& operator[](int32_t id) { return texts()[static_cast<size_t>(id)]; }

 private:
  std::vector<std::string>& texts() { return parts_->tables.tokens; }

  BpeParts* const parts_;
  std::unordered_map<std::string, int32_t> ids_;  // by how the file spells them
};

StatusOr<std::array<int32_t, 256>> AddBytes(Tokens* tokens) {
  std::array<std::string, kBytes> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i);
  // UTF-8 sorts as its code points do.
  std::ranges::sort(bytes, {}, [](const std::string& byte) { return AlphabetOfBytes(byte); });
  std::array<int32_t, 256> ids{};
  for (const std::string& byte : bytes) {
    ASSIGN_OR_RETURN(ids[static_cast<unsigned char>(byte.front())], tokens->IdOf(byte));
  }
  return ids;
}

}  // namespace

StatusOr<BpeParts> TrainTokenizer(const TrainTokenizerArgs& args,
                                  std::span<const TrainingText> texts) {
  RETURN_IF_ERROR(CheckArgs(args));
  ASSIGN_OR_RETURN(const std::vector<PieceCount> pieces,
                   CountPieces(args.pattern, texts, args.threads));
  if (pieces.empty()) return base::InvalidArgument("the texts are empty");
  BpeParts parts;
  parts.name = "hf";
  parts.patterns = {args.pattern};
  if (!args.specials.empty()) parts.eod = args.specials.front();
  Tokens tokens(&parts);
  for (const std::string& special : args.specials) tokens.AddSpecial(special);
  ASSIGN_OR_RETURN(const auto ids_of_bytes, AddBytes(&tokens));
  WordMerger words(pieces, ids_of_bytes);
  while (tokens.size() < args.vocab_size) {
    if (args.progress && tokens.size() % kTokensPerReport == 0 && !args.progress(tokens.size()))
      return base::Error(absl::StatusCode::kCancelled, "cancelled");
    const WordMerger::Candidate best = words.Take();
    if (best.count < std::max<int64_t>(1, args.min_count)) break;
    ASSIGN_OR_RETURN(const int32_t result, tokens.IdOf(tokens[best.left] + tokens[best.right]));
    parts.tables.merges.push_back({.left = best.left, .right = best.right, .result = result});
    words.Merge(best, result);
  }
  return parts;
}

}  // namespace mt::data
