// Text is taken apart from the outside: added tokens, runs of valid and of invalid UTF-8, pieces.
#include "worker/data/tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "common/base/plain_text.h"
#include "worker/data/tokenizer/fast_splitters.h"
#include "worker/data/tokenizer/nfc.h"
#include "worker/data/tokenizer/splitter.h"
#include "worker/data/tokenizer/unicode.h"

namespace mt::data {
namespace {

// What published vocabularies call the token between documents, in the order of preference.
constexpr std::array<std::string_view, 8> kUsualEods = {
    "<|endoftext|>", "<|end_of_text|>", "<|eod|>", "<eod>",
    "</s>",          "<eos>",           "<|eos|>", "<｜end▁of▁sentence｜>"};

class BpeTokenizer final : public Tokenizer {
 public:
  struct Args {
    std::string name, digest;
    BpeModel model;
    Splitter splitter;
    AddedPasses added;
    std::vector<std::string> texts;  // by id: what it decodes to
    int32_t eod;
    Cuts cuts;
    bool nfc;
  };
  explicit BpeTokenizer(Args args) : args_(std::move(args)) {}

  std::string_view name() const override { return args_.name; }
  std::string digest() const override { return args_.digest; }
  int64_t vocab_size() const override { return static_cast<int64_t>(args_.texts.size()); }
  int32_t eod() const override { return args_.eod; }
  Cuts cuts() const override { return args_.cuts; }
  std::vector<int32_t> token_bytes() const override {
    std::vector<int32_t> bytes;
    bytes.reserve(args_.texts.size());
    for (const std::string& text : args_.texts) bytes.push_back(static_cast<int32_t>(text.size()));
    if (args_.eod != kNoEod) bytes[static_cast<size_t>(args_.eod)] = 0;
    return bytes;
  }

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
      if (!HasText(args_.texts, id)) return NoText(args_.texts, id);
      text.append(args_.texts[static_cast<size_t>(id)]);
    }
    return text;
  }

 private:
  Status EncodeText(std::string_view text, BpeScratch* scratch, std::vector<int32_t>* ids) const {
    return args_.added.as_is.Split(text, [&](std::string_view part, int32_t id) -> Status {
      if (id == AddedTokens::kText) return EncodePart(text, part, scratch, ids);
      ids->push_back(id);
      return OkStatus();
    });
  }

  // `part` is one of `text`.
  Status EncodePart(std::string_view text, std::string_view part, BpeScratch* scratch,
                    std::vector<int32_t>* ids) const {
    if (!args_.nfc || IsSurelyNfc(part)) return EncodeNormalized(text, part, scratch, ids);
    const int64_t offset = part.data() - text.data();
    const StatusOr<std::string> changed = Nfc(part);
    if (!changed.ok()) return Moved(changed.status(), offset);
    const Status encoded = EncodeNormalized(*changed, *changed, scratch, ids);
    // What was changed has no offsets of the text; the begin of the part is the nearest.
    return encoded.ok() ? encoded
                        : ErrorAt(offset, "in the text from there, " + base::Message(encoded));
  }

  Status EncodeNormalized(std::string_view text, std::string_view part, BpeScratch* scratch,
                          std::vector<int32_t>* ids) const {
    return args_.added.normalized.Split(part, [&](std::string_view left, int32_t id) -> Status {
      if (id == AddedTokens::kText) return EncodeRuns(text, left, scratch, ids);
      ids->push_back(id);
      return OkStatus();
    });
  }

  // `left` is a part of `text`.
  Status EncodeRuns(std::string_view text, std::string_view left, BpeScratch* scratch,
                    std::vector<int32_t>* ids) const {
    const auto encode = [&](std::string_view piece) -> Status {
      if (piece.size() > kMaxPieceBytes) {
        return ErrorAt(
            piece.data() - text.data(),
            fmt::format("the piece of text has {} bytes, more than the {} that a tokenizer takes: "
                        "is this text?",
                        piece.size(), kMaxPieceBytes));
      }
      args_.model.Encode(piece, scratch, ids);
      return OkStatus();
    };
    while (!left.empty()) {
      const size_t valid = ValidUtf8Prefix(left);
      const Status split = args_.splitter.Split(left.substr(0, valid), encode);
      // What a pattern cannot match is told by its place in what the pattern was given.
      if (!split.ok())
        return OffsetOf(split) ? split : ErrorAt(left.data() - text.data(), base::Message(split));
      left.remove_prefix(valid);
      const size_t invalid = InvalidUtf8Prefix(left);
      if (invalid > 0) RETURN_IF_ERROR(encode(left.substr(0, invalid)));
      left.remove_prefix(invalid);
    }
    return OkStatus();
  }

  const Args args_;
  mutable BpeScratchPool pool_;
};

// Whether text in which NFC finds this token has it as it is: some characters become these ones.
bool IsAsNfcFoundIt(std::string_view token) {
  return std::ranges::all_of(token, [](char c) {
    return (static_cast<unsigned char>(c) & 0x80U) == 0 && c != 'K' && c != ';' && c != '`';
  });
}

// Where the ids of the parts are those of the whole. Digits that are split off by themselves leave
// the places between words as they are. White space beside a cut is a single space behind it or a
// single line end before it, so what a token takes of it, or sees of its neighbours, is a text. NFC
// joins nothing to a space or to a line end.
Cuts CutsOf(const BpeParts& parts) {
  bool words = false;
  for (const std::string& pattern : parts.patterns) {
    const bool known = FindFastSplitter(pattern) != nullptr;
    if (!known && pattern != kDigitPattern && pattern != kDigitsPattern) return {};
    words |= known;
  }
  if (!words) return {};
  Cuts cuts{.rule = CutRule::kAfterWord};
  for (const NamedToken& token : parts.named) {
    if (!token.in_text) continue;
    const std::string& text = token.text;
    // A cut that hides a neighbour; what else it hides is no character of a word.
    if (token.single_word && (text.starts_with(' ') || text.ends_with('\n'))) return {};
    const bool spaces = text.find_first_of(" \n") != std::string::npos;
    if (parts.nfc && token.normalized && (spaces || token.lstrip || token.rstrip) &&
        !IsAsNfcFoundIt(text))
      return {};
    if (spaces) cuts.whole.push_back(text);
    if (token.lstrip) cuts.whole.push_back("\n" + text);
    if (token.rstrip) cuts.whole.push_back(text + " ");
  }
  return cuts;
}

}  // namespace

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

Status NoText(const std::vector<std::string>& texts, int32_t id) {
  if (id >= 0 && static_cast<size_t>(id) < texts.size())
    return base::InvalidArgument("token id {} has no token", id);
  return base::InvalidArgument("token id {} is outside the vocabulary of {}", id, texts.size());
}

StatusOr<AddedPasses> AddedPassesOf(const std::vector<NamedToken>& named) {
  std::vector<AddedToken> as_is, normalized;
  std::array<std::unordered_map<std::string_view, int32_t>, 2> ids;  // of the two passes
  for (const NamedToken& token : named) {
    if (!token.in_text) continue;
    const auto [other, fresh] = ids[token.normalized ? 1 : 0].emplace(token.text, token.id);
    if (!fresh) {
      return base::InvalidArgument("added tokens {} and {} are found by the same text, \"{}\"",
                                   other->second, token.id,
                                   base::CleanLine(token.text.substr(0, 64)));
    }
    (token.normalized ? normalized : as_is)
        .push_back({.text = token.text,
                    .id = token.id,
                    .single_word = token.single_word,
                    .lstrip = token.lstrip,
                    .rstrip = token.rstrip});
  }
  return AddedPasses{.as_is = AddedTokens(std::move(as_is)),
                     .normalized = AddedTokens(std::move(normalized))};
}

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
  if (parts.text) return MakeTextTokenizer(std::move(parts));
  ASSIGN_OR_RETURN(std::vector<std::string> texts, TextsOf(parts));
  ASSIGN_OR_RETURN(const int32_t eod, FindEod(parts));
  for (NamedToken& token : parts.named) {
    if (!parts.nfc || !token.normalized) continue;
    ASSIGN_OR_RETURN(token.text, Nfc(token.text));
    texts[static_cast<size_t>(token.id)] = token.text;
  }
  ASSIGN_OR_RETURN(Splitter splitter, Splitter::Create(parts.patterns));
  ASSIGN_OR_RETURN(AddedPasses added, AddedPassesOf(parts.named));
  Cuts cuts = CutsOf(parts);
  ASSIGN_OR_RETURN(BpeModel model, BpeModel::Create(std::move(parts.tables)));
  return std::make_unique<BpeTokenizer>(BpeTokenizer::Args{.name = std::move(parts.name),
                                                           .digest = std::move(parts.digest),
                                                           .model = std::move(model),
                                                           .splitter = std::move(splitter),
                                                           .added = std::move(added),
                                                           .texts = std::move(texts),
                                                           .eod = eod,
                                                           .cuts = std::move(cuts),
                                                           .nfc = parts.nfc});
}

}  // namespace mt::data
