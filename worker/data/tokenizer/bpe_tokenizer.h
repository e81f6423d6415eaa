// A byte-level tokenizer: added tokens, a splitter, and byte-pair encoding of the pieces. Decoding
// gives back the bytes that were encoded, whatever they are, but for white space that added tokens
// with lstrip or rstrip take, and for what `nfc` makes of them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/data/tokenizer/added_tokens.h"
#include "worker/data/tokenizer/bpe_model.h"
#include "worker/data/tokenizer/text_tokenizer.h"
#include "worker/data/tokenizer/tokenizer.h"

namespace mt::data {

// A token that has a text of its own.
struct NamedToken {
  std::string text{};
  int32_t id = 0;
  bool in_text = true;  // found in text that is encoded; else only decoded, and EOD
  // As AddedToken has them.
  bool single_word = false, lstrip = false, rstrip = false;
  // Found, in what the normalizer makes of text, where what it makes of the token's text is; after
  // those that are not.
  bool normalized = false;
};

// The parts of a tokenizer, as files give them and the trainer makes them.
struct BpeParts {
  std::string name{};    // "gpt2_bpe", "hf"
  std::string digest{};  // of the files
  BpeTables tables{};
  std::vector<std::string> patterns{};
  bool nfc = false;  // text between the tokens that are not normalized is brought to NFC first
  std::vector<NamedToken> named{};
  std::string eod{};  // text of the end-of-document token; empty: the first usual one there is
  std::optional<TextRules> text{};  // a tokenizer of characters, not of bytes: tokens are texts
};

// kInvalidArgument: see BpeModel::Create and Splitter::Create, or MakeTextTokenizer; an `eod` that
// is no token.
StatusOr<std::unique_ptr<Tokenizer>> MakeBpeTokenizer(BpeParts parts);

// The id of the end-of-document token: of `eod`, or of the first of the texts that published
// vocabularies call it by. kNoEod where there is none; kInvalidArgument where `eod` is no token.
StatusOr<int32_t> FindEod(const BpeParts& parts);

// The texts of ids, those of tokens and of the named ones; "" where an id has none.
StatusOr<std::vector<std::string>> TextsOf(const BpeParts& parts);
// Whether the id has one of them, and what is said where it has none.
inline bool HasText(const std::vector<std::string>& texts, int32_t id) {
  return id >= 0 && static_cast<size_t>(id) < texts.size() &&
         !texts[static_cast<size_t>(id)].empty();
}
Status NoText(const std::vector<std::string>& texts, int32_t id);

// The named tokens that are found in text.
struct AddedPasses {
  AddedTokens as_is{};       // in the text as it is
  AddedTokens normalized{};  // then in what is left of it
};
// kInvalidArgument for two of one text, of which nothing says which is meant.
StatusOr<AddedPasses> AddedPassesOf(const std::vector<NamedToken>& named);

}  // namespace mt::data
