// Byte-pair encoding over characters, as tokenizer.json of Llama 2 and its like have it: tokens are
// texts, and a character without a token becomes the tokens of its bytes, or the unknown one. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/status.h"
#include "worker/data/tokenizer/bpe_model.h"

namespace mt::data {

struct UnknownRules {
  bool byte_fallback = false;  // where all bytes of the character have a token <0xNN>
  std::string unk_token{};     // else; empty: the character vanishes
  bool fuse_unk = false;       // neighbouring unknown characters are one token
};

// Immutable and thread-safe.
class TextBpe {
 public:
  // kInvalidArgument for merges of ids that have no token, and an unk_token that is none but may be
  // needed. ignore_merges is about words.
  static StatusOr<TextBpe> Create(BpeTables tables, const UnknownRules& rules);

  // Appends the ids of a word: what the text is split into before the model, up to all of it. A
  // run of bytes that are no UTF-8 is a piece of its own, of characters without a token.
  // kInvalidArgument where a piece in it, which merges may join, is above kMaxPieceBytes.
  Status Encode(std::string_view word, BpeScratch* scratch, std::vector<int32_t>* ids) const;
  const BpeModel& model() const { return model_; }

 private:
  explicit TextBpe(BpeModel model) : model_(std::move(model)) {}
  Status SetUnknown(const UnknownRules& rules);
  void SetCharacters();
  void SetBorders();
  int32_t IdOf(std::string_view text) const;
  int32_t IdOfCharacter(uint32_t code) const;
  bool MayMerge(uint32_t left, uint32_t right) const;
  // The bytes that no merge joins to what follows in `text`, valid UTF-8.
  size_t FirstPiece(std::string_view text) const;
  Status EncodePiece(std::string_view piece, BpeScratch* scratch, std::vector<int32_t>* ids) const;
  std::vector<int32_t> Symbols(std::string_view piece) const;

  BpeModel model_;
  std::unordered_map<std::string_view, int32_t> ids_;  // views of the model's tokens
  std::vector<int32_t> characters_;                    // ids by code point
  std::array<int32_t, 256> bytes_{};                   // -1: none
  bool all_bytes_ = false;                             // no character is unknown
  bool unknown_merges_ = false;  // a merge is of bytes or of the unknown token
  int32_t unk_ = -1;
  bool fuse_unk_ = false;
  // The last and first characters of what merges join: open addressing, ~0 is free.
  std::vector<uint64_t> borders_;
};

}  // namespace mt::data
