// A word may be a whole document. It is cut where no merge joins the characters on both sides: the
// tokens are the same, pieces are short and met again, and memory does not follow the document.
#include "worker/data/tokenizer/text_bpe.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/base/plain_text.h"
#include "worker/data/tokenizer/unicode.h"

namespace mt::data {
namespace {

constexpr int32_t kNoId = -1;
constexpr uint64_t kFreeBorder = ~uint64_t{0};

uint64_t Border(uint32_t left, uint32_t right) { return (uint64_t{left} << 32) | right; }

size_t SlotOfBorder(uint64_t border, size_t slots) {
  const uint64_t mixed = (border ^ (border >> 29)) * 0x9E3779B97F4A7C15;
  return static_cast<size_t>(mixed >> 32) & (slots - 1);
}

uint32_t LastCharacter(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return DecodeUtf8(text.data() + at).code;
}

}  // namespace

StatusOr<TextBpe> TextBpe::Create(BpeTables tables, const UnknownRules& rules) {
  for (size_t id = 0; id < tables.tokens.size(); ++id) {
    if (ValidUtf8Prefix(tables.tokens[id]) != tables.tokens[id].size())
      return base::InvalidArgument("token {} is no UTF-8", id);
  }
  ASSIGN_OR_RETURN(BpeModel model, BpeModel::CreateOfTexts(std::move(tables)));
  TextBpe made(std::move(model));
  made.SetCharacters();
  RETURN_IF_ERROR(made.SetUnknown(rules));
  made.SetBorders();
  return made;
}

void TextBpe::SetCharacters() {
  const std::vector<std::string>& tokens = model_.tables().tokens;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].empty()) continue;
    const auto id = static_cast<int32_t>(i);
    ids_.emplace(tokens[i], id);
    const CodePoint first = DecodeUtf8(tokens[i].data());
    if (first.bytes != tokens[i].size()) continue;
    if (first.code >= characters_.size()) characters_.resize(first.code + 1, kNoId);
    characters_[first.code] = id;
  }
}

Status TextBpe::SetUnknown(const UnknownRules& rules) {
  bytes_.fill(kNoId);
  if (rules.byte_fallback) {
    for (size_t byte = 0; byte < bytes_.size(); ++byte)
      bytes_[byte] = IdOf(fmt::format("<0x{:02X}>", byte));
  }
  all_bytes_ = std::ranges::find(bytes_, kNoId) == bytes_.end();
  fuse_unk_ = rules.fuse_unk;
  if (rules.unk_token.empty()) return OkStatus();
  unk_ = IdOf(rules.unk_token);
  if (unk_ != kNoId || all_bytes_) return OkStatus();
  return base::InvalidArgument("model.unk_token: \"{}\" is not in the vocabulary",
                               base::CleanLine(rules.unk_token.substr(0, 64)));
}

void TextBpe::SetBorders() {
  const BpeTables& tables = model_.tables();
  borders_.assign(std::bit_ceil(std::max<size_t>(16, tables.merges.size() * 2)), kFreeBorder);
  const auto unknown = [&](int32_t id) {
    return id == unk_ || std::ranges::find(bytes_, id) != bytes_.end();
  };
  for (const BpeMerge& merge : tables.merges) {
    unknown_merges_ = unknown_merges_ || unknown(merge.left) || unknown(merge.right);
    const uint64_t border = Border(LastCharacter(model_.token(merge.left)),
                                   DecodeUtf8(model_.token(merge.right).data()).code);
    size_t at = SlotOfBorder(border, borders_.size());
    while (borders_[at] != kFreeBorder && borders_[at] != border)
      at = (at + 1) & (borders_.size() - 1);
    borders_[at] = border;
  }
}

int32_t TextBpe::IdOf(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? kNoId : found->second;
}

int32_t TextBpe::IdOfCharacter(uint32_t code) const {
  return code < characters_.size() ? characters_[code] : kNoId;
}

// Where one of the two has no token the bytes' do not merge, or it is not known what stands there.
bool TextBpe::MayMerge(uint32_t left, uint32_t right) const {
  if (IdOfCharacter(left) == kNoId || IdOfCharacter(right) == kNoId)
    return !all_bytes_ || unknown_merges_;
  const uint64_t border = Border(left, right);
  for (size_t at = SlotOfBorder(border, borders_.size());; at = (at + 1) & (borders_.size() - 1)) {
    if (borders_[at] == border) return true;
    if (borders_[at] == kFreeBorder) return false;
  }
}

size_t TextBpe::FirstPiece(std::string_view text) const {
  CodePoint left = DecodeUtf8(text.data());
  size_t at = left.bytes;
  while (at < text.size()) {
    const CodePoint right = DecodeUtf8(text.data() + at);
    if (!MayMerge(left.code, right.code)) break;
    at += right.bytes;
    left = right;
  }
  return at;
}

Status TextBpe::Encode(std::string_view word, BpeScratch* scratch,
                       std::vector<int32_t>* ids) const {
  if (model_.tables().ignore_merges) {
    const int32_t id = IdOf(word);
    if (id != kNoId) {
      ids->push_back(id);
      return OkStatus();
    }
  }
  while (!word.empty()) {
    const size_t valid = ValidUtf8Prefix(word);
    for (std::string_view left = word.substr(0, valid); !left.empty();) {
      const size_t size = FirstPiece(left);
      RETURN_IF_ERROR(EncodePiece(left.substr(0, size), scratch, ids));
      left.remove_prefix(size);
    }
    word.remove_prefix(valid);
    const size_t invalid = InvalidUtf8Prefix(word);
    if (invalid > 0) RETURN_IF_ERROR(EncodePiece(word.substr(0, invalid), scratch, ids));
    word.remove_prefix(invalid);
  }
  return OkStatus();
}

Status TextBpe::EncodePiece(std::string_view piece, BpeScratch* scratch,
                            std::vector<int32_t>* ids) const {
  if (piece.size() > kMaxPieceBytes) {
    return base::InvalidArgument(
        "a piece of {} bytes, more than the {} that a tokenizer takes: is this text?", piece.size(),
        kMaxPieceBytes);
  }
  scratch->Encode(piece, ids, [&] {
    const LongPieceTurn turn(piece.size());
    model_.MergeIds(Symbols(piece), scratch, ids);
  });
  return OkStatus();
}

// An unknown token waits for a character that has one: the bytes of others pass it, as in the
// tokenizers library.
std::vector<int32_t> TextBpe::Symbols(std::string_view piece) const {
  std::vector<int32_t> symbols;
  symbols.reserve(piece.size());
  bool waiting = false;
  const auto unknown = [&](std::string_view character) {
    const auto missing = [&](char byte) {
      return bytes_[static_cast<unsigned char>(byte)] == kNoId;
    };
    if (std::ranges::none_of(character, missing)) {
      for (const char byte : character) symbols.push_back(bytes_[static_cast<unsigned char>(byte)]);
      return;
    }
    if (unk_ == kNoId) return;
    if (waiting && !fuse_unk_) symbols.push_back(unk_);
    waiting = true;
  };
  const bool valid = ValidUtf8Prefix(piece) == piece.size();
  for (size_t at = 0; at < piece.size();) {
    const CodePoint point = valid ? DecodeUtf8(piece.data() + at) : CodePoint{kCodePoints, 1};
    const int32_t id = IdOfCharacter(point.code);
    if (id == kNoId) {
      unknown(piece.substr(at, point.bytes));
    } else {
      if (std::exchange(waiting, false)) symbols.push_back(unk_);
      symbols.push_back(id);
    }
    at += point.bytes;
  }
  if (waiting) symbols.push_back(unk_);
  return symbols;
}

}  // namespace mt::data
