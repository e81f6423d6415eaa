// Added tokens are looked for twice: those that are not normalized in the text as it is, the others
// in what the normalizer makes of the parts between them.
#include "worker/data/tokenizer/text_tokenizer.h"

#include <algorithm>
#include <utility>

#include "common/base/plain_text.h"
#include "worker/data/tokenizer/bpe_tokenizer.h"

namespace mt::data {
namespace {

class TextTokenizer final : public Tokenizer {
 public:
  struct Args {
    std::string name, digest;
    TextBpe model;
    TextRules rules;
    AddedPasses added;
    std::vector<std::string> texts;  // by id: what decoders see
    int32_t eod;
  };
  explicit TextTokenizer(Args args) : args_(std::move(args)) {}

  std::string_view name() const override { return args_.name; }
  std::string digest() const override { return args_.digest; }
  int64_t vocab_size() const override { return static_cast<int64_t>(args_.texts.size()); }
  int32_t eod() const override { return args_.eod; }
  std::vector<int32_t> token_bytes() const override {
    std::vector<int32_t> bytes;
    bytes.reserve(args_.texts.size());
    for (const std::string& text : args_.texts) bytes.push_back(BytesOf(text));
    if (args_.eod != kNoEod) bytes[static_cast<size_t>(args_.eod)] = 0;
    return bytes;
  }

  Status Encode(std::string_view text, std::vector<int32_t>* ids) const override {
    std::unique_ptr<BpeScratch> scratch = pool_.Take();
    ids->reserve(ids->size() + text.size() / 4);
    Status status = args_.added.as_is.Split(text, [&](std::string_view part, int32_t id) -> Status {
      if (id != AddedTokens::kText) {
        ids->push_back(id);
        return OkStatus();
      }
      const auto offset = static_cast<size_t>(part.data() - text.data());
      const Status encoded = EncodePart(part, offset == 0, scratch.get(), ids);
      // What the rules make of text has no offsets of it; the begin of the part is the nearest.
      return encoded.ok() ? encoded
                          : ErrorAt(static_cast<int64_t>(offset),
                                    "in the text from there, " + base::Message(encoded));
    });
    pool_.Return(std::move(scratch));
    return status;
  }

  StatusOr<std::string> Decode(std::span<const int32_t> ids) const override {
    std::vector<std::string> tokens;
    tokens.reserve(ids.size());
    for (const int32_t id : ids) {
      if (!HasText(args_.texts, id)) return NoText(args_.texts, id);
      tokens.push_back(args_.texts[static_cast<size_t>(id)]);
    }
    return Decoded(args_.rules.decoder, std::move(tokens));
  }

 private:
  // What the decoder makes of a token behind another one, which the begin of a text is not. A byte
  // by itself may be no UTF-8, and what the unknown token stood for is gone.
  int32_t BytesOf(const std::string& text) const {
    if (text.empty() || text == args_.rules.unknown.unk_token) return 0;
    if (args_.rules.unknown.byte_fallback && ByteOfToken(text)) return 1;
    const size_t twice = Decoded(args_.rules.decoder, {text, text}).size();
    const size_t once = Decoded(args_.rules.decoder, {text}).size();
    return static_cast<int32_t>(twice - std::min(twice, once));
  }

  // Of the text between two added tokens; `first` where it is the begin of all.
  Status EncodePart(std::string_view part, bool first, BpeScratch* scratch,
                    std::vector<int32_t>* ids) const {
    std::string changed;
    if (!args_.rules.normalizer.empty()) {
      changed = Normalized(args_.rules.normalizer, part);
      part = changed;
    }
    return args_.added.normalized.Split(part, [&](std::string_view text, int32_t id) -> Status {
      if (id == AddedTokens::kText)
        return EncodeText(text, first && text.data() == part.data(), scratch, ids);
      ids->push_back(id);
      return OkStatus();
    });
  }

  Status EncodeText(std::string_view text, bool first, BpeScratch* scratch,
                    std::vector<int32_t>* ids) const {
    if (!args_.rules.metaspace) return args_.model.Encode(text, scratch, ids);
    const Metaspace& rule = *args_.rules.metaspace;
    const std::string marked = WithMarks(rule, text, first);
    for (std::string_view left = marked; !left.empty();) {
      const size_t size = rule.split ? std::min(left.find(rule.mark, 1), left.size()) : left.size();
      RETURN_IF_ERROR(args_.model.Encode(left.substr(0, size), scratch, ids));
      left.remove_prefix(size);
    }
    return OkStatus();
  }

  const Args args_;
  mutable BpeScratchPool pool_;
};

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> MakeTextTokenizer(BpeParts parts) {
  TextRules rules = std::move(parts.text).value_or(TextRules{});
  ASSIGN_OR_RETURN(std::vector<std::string> texts, TextsOf(parts));
  ASSIGN_OR_RETURN(const int32_t eod, FindEod(parts));
  for (NamedToken& token : parts.named) {
    if (!token.normalized) continue;
    std::string text = Normalized(rules.normalizer, token.text);
    if (text.empty()) {
      return base::InvalidArgument("the normalizer leaves nothing of added token {}, \"{}\"",
                                   token.id, base::CleanLine(token.text.substr(0, 64)));
    }
    token.text = std::move(text);
    texts[static_cast<size_t>(token.id)] = token.text;
  }
  ASSIGN_OR_RETURN(AddedPasses added, AddedPassesOf(parts.named));
  ASSIGN_OR_RETURN(TextBpe model, TextBpe::Create(std::move(parts.tables), rules.unknown));
  return std::make_unique<TextTokenizer>(TextTokenizer::Args{.name = std::move(parts.name),
                                                             .digest = std::move(parts.digest),
                                                             .model = std::move(model),
                                                             .rules = std::move(rules),
                                                             .added = std::move(added),
                                                             .texts = std::move(texts),
                                                             .eod = eod});
}

}  // namespace mt::data
