// Text is taken apart from the outside: added tokens, runs of valid and of invalid UTF-8, pieces.
#include "worker/data/tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "common/base/mutex.h"
#include "worker/data/tokenizer/added_tokens.h"
#include "worker/data/tokenizer/splitter.h"
#include "worker/data/tokenizer/unicode.h"

namespace mt::data {
namespace {

// What published vocabularies call the token between documents, in the order of preference.
constexpr std::array<std::string_view, 8> kUsualEods = {
    "<|endoftext|>", "<|end_of_text|>", "<|eod|>", "<eod>",
    "</s>",          "<eos>",           "<|eos|>", "<｜end▁of▁sentence｜>"};

// Scratch of encodings that have ended, for those that begin.
class ScratchPool {
 public:
  std::unique_ptr<BpeScratch> Take() {
    {
      const base::MutexLock lock(&mutex_);
      if (!free_.empty()) {
        std::unique_ptr<BpeScratch> taken = std::move(free_.back());
        free_.pop_back();
        return taken;
      }
    }
    return std::make_unique<BpeScratch>();
  }
  void Return(std::unique_ptr<BpeScratch> scratch) {
    const base::MutexLock lock(&mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  base::Mutex mutex_;
  std::vector<std::unique_ptr<BpeScratch>> free_ GUARDED_BY(mutex_);
};

class BpeTokenizer final : public Tokenizer {
 public:
  struct Args {
    std::string name, digest;
    BpeModel model;
    Splitter splitter;
    AddedTokens added;
    std::vector<std::string> texts;  // by id: what it decodes to
    int32_t eod;
  };
  explicit BpeTokenizer(Args args) : args_(std::move(args)) {}

  std::string_view name() const override { return args_.name; }
  std::string digest() const override { return args_.digest; }
  int64_t vocab_size() const override { return static_cast<int64_t>(args_.texts.size()); }
  int32_t eod() const override { return args_.eod; }

  Status Encode(std::string_view text, std::vector<int32_t>* ids) const override {
    std::unique_ptr<BpeScratch> scratch = pool_.Take();
    ids->reserve(ids->size() + text.size() / 4);
    Status status = EncodeText(text, scratch.get(), ids);
    pool_.Return(std::move(scratch));
    return status;
  }

  StatusOr<std::string> Decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id < 0 || id >= vocab_size()) {
        return base::InvalidArgument("token id {} is outside the vocabulary of {}", id,
                                     vocab_size());
      }
      const std::string& part = args_.texts[static_cast<size_t>(id)];
      if (part.empty()) return base::InvalidArgument("token id {} has no token", id);
      text.append(part);
    }
    return text;
  }

 private:
  Status EncodeText(std::string_view text, BpeScratch* scratch, std::vector<int32_t>* ids) const {
    for (size_t at = 0; at < text.size();) {
      const AddedTokens::Match match = args_.added.Find(text, at);
      RETURN_IF_ERROR(EncodeRuns(text, at, match.offset, scratch, ids));
      at = match.offset;
      if (match.token == nullptr) break;
      ids->push_back(match.token->id);
      at += match.token->text.size();
    }
    return OkStatus();
  }

  Status EncodeRuns(std::string_view text, size_t begin, size_t end, BpeScratch* scratch,
                    std::vector<int32_t>* ids) const {
    const auto encode = [&](std::string_view piece) -> Status {
      if (piece.size() > kMaxPieceBytes) {
        return base::InvalidArgument(
            "the piece of text at offset {} has {} bytes, more than the {} that a tokenizer takes: "
            "is this text?",
            piece.data() - text.data(), piece.size(), kMaxPieceBytes);
      }
      args_.model.Encode(piece, scratch, ids);
      return OkStatus();
    };
    std::string_view left = text.substr(begin, end - begin);
    while (!left.empty()) {
      const size_t valid = ValidUtf8Prefix(left);
      RETURN_IF_ERROR(args_.splitter.Split(left.substr(0, valid), encode));
      left.remove_prefix(valid);
      const size_t invalid = InvalidUtf8Prefix(left);
      if (invalid > 0) RETURN_IF_ERROR(encode(left.substr(0, invalid)));
      left.remove_prefix(invalid);
    }
    return OkStatus();
  }

  const Args args_;
  mutable ScratchPool pool_;
};

// The texts that ids decode to: those of tokens, then of the named ones.
StatusOr<std::vector<std::string>> TextsOf(const BpeParts& parts) {
  std::vector<std::string> texts = parts.tables.tokens;
  for (const NamedToken& token : parts.named) {
    const auto id = static_cast<size_t>(token.id);
    if (token.text.empty()) return base::InvalidArgument("added token {} has no text", token.id);
    if (id >= texts.size()) texts.resize(id + 1);
    if (!texts[id].empty() && texts[id] != token.text) {
      return base::InvalidArgument("id {} is that of two tokens: \"{}\" and \"{}\"", token.id,
                                   texts[id], token.text);
    }
    texts[id] = token.text;
  }
  return texts;
}

}  // namespace

StatusOr<int32_t> FindEod(const BpeParts& parts) {
  const auto find = [&](std::string_view text) -> int32_t {
    for (const NamedToken& token : parts.named) {
      if (token.text == text) return token.id;
    }
    const auto& tokens = parts.tables.tokens;
    const auto found = std::ranges::find(tokens, text);
    return found == tokens.end() ? kNoEod : static_cast<int32_t>(found - tokens.begin());
  };
  if (!parts.eod.empty()) {
    const int32_t id = find(parts.eod);
    if (id != kNoEod) return id;
    return base::InvalidArgument("the end-of-document token \"{}\" is not in the vocabulary",
                                 parts.eod);
  }
  for (const std::string_view text : kUsualEods) {
    const int32_t id = find(text);
    if (id != kNoEod) return id;
  }
  return kNoEod;
}

StatusOr<std::unique_ptr<Tokenizer>> MakeBpeTokenizer(BpeParts parts) {
  ASSIGN_OR_RETURN(std::vector<std::string> texts, TextsOf(parts));
  ASSIGN_OR_RETURN(const int32_t eod, FindEod(parts));
  ASSIGN_OR_RETURN(Splitter splitter, Splitter::Create(parts.patterns));
  std::vector<AddedToken> added;
  for (const NamedToken& token : parts.named) {
    if (token.in_text) added.push_back({.text = token.text, .id = token.id});
  }
  ASSIGN_OR_RETURN(BpeModel model, BpeModel::Create(std::move(parts.tables)));
  return std::make_unique<BpeTokenizer>(BpeTokenizer::Args{.name = std::move(parts.name),
                                                           .digest = std::move(parts.digest),
                                                           .model = std::move(model),
                                                           .splitter = std::move(splitter),
                                                           .added = AddedTokens(std::move(added)),
                                                           .texts = std::move(texts),
                                                           .eod = eod});
}

}  // namespace mt::data
