// Bytes have a way of their own, without the list of ids between text and file: it is what takes
// the time where the tokenizer takes none.
#include "worker/data/prepare/batch_encoder.h"

#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace mt::data {
namespace {

// Appends each value as a T. Returns the first that does not fit, or nullptr.
template <class T, class Value>
const Value* Widen(const Value* values, size_t count, std::string* out) {
  const size_t at = out->size();
  out->resize(at + count * sizeof(T));
  char* to = out->data() + at;
  bool fits = true;  // no branch per value, so that the loop vectorises
  for (size_t i = 0; i < count; ++i) {
    const T narrow = static_cast<T>(values[i]);
    fits &= std::in_range<T>(values[i]);
    std::memcpy(to + i * sizeof(T), &narrow, sizeof(T));
  }
  if (fits) return nullptr;
  for (size_t i = 0; i < count; ++i) {
    if (!std::in_range<T>(values[i])) return values + i;
  }
  return nullptr;
}

template <class Value>
const Value* WidenTo(TokenType type, const Value* values, size_t count, std::string* out) {
  switch (type) {
    case TokenType::kU8:
      return Widen<uint8_t>(values, count, out);
    case TokenType::kI8:
      return Widen<int8_t>(values, count, out);
    case TokenType::kI16:
      return Widen<int16_t>(values, count, out);
    case TokenType::kU16:
      return Widen<uint16_t>(values, count, out);
    case TokenType::kI32:
      return Widen<int32_t>(values, count, out);
    case TokenType::kI64:
      return Widen<int64_t>(values, count, out);
    case TokenType::kF64:
    case TokenType::kF32:
      break;
  }
  CHECK(false) << "token files hold integers";
  return nullptr;
}

// Gives back the memory of a batch that was larger than usual.
template <class Buffer>
void ShrinkTo(size_t usual, Buffer* buffer) {
  if (buffer->capacity() <= usual) return;
  buffer->clear();
  buffer->shrink_to_fit();
}

}  // namespace

Status AppendTokens(const std::vector<int32_t>& ids, TokenType type, std::string* out) {
  const int32_t* wrong = WidenTo(type, ids.data(), ids.size(), out);
  if (wrong == nullptr) return OkStatus();
  return base::InvalidArgument("token id {} does not fit {}", *wrong, Name(type));
}

BatchEncoder::BatchEncoder(const EncodeOptions& options)
    : options_(options), is_bytes_(options.tokenizer->name() == "byte"), json_(options.jsonl_key) {}

void BatchEncoder::Encode(const std::vector<std::string>& inputs, TextBatch* batch) {
  for (size_t i = 0; i < batch->pieces.size(); ++i) {
    TextPiece& piece = batch->pieces[i];
    const size_t before = batch->tokens.size();
    const Status status = EncodePiece(*batch, piece, &piece.tokens, &batch->tokens);
    if (status.ok()) continue;
    const bool in_text = !options_.jsonl_key.empty() && OffsetOf(status).has_value();
    batch->status = base::Annotate(Moved(status, piece.offset),
                                   fmt::format("{}:{}{}", inputs[batch->file], piece.line,
                                               in_text ? ": " + options_.jsonl_key : ""));
    batch->tokens.resize(before);
    batch->pieces.resize(i);
    batch->can_resume = false;
    break;
  }
  ShrinkTo(options_.usual_bytes, &text_);
  ShrinkTo(options_.usual_bytes, &ids_);
}

Status BatchEncoder::EncodePiece(const TextBatch& batch, const TextPiece& piece, int64_t* count,
                                 std::string* out) {
  std::string_view text = std::string_view(batch.text).substr(piece.begin, piece.bytes);
  *count = 0;
  if (batch.json) {
    text_.clear();
    json_.Begin();
    RETURN_IF_ERROR(json_.Feed(text, &text_));
    RETURN_IF_ERROR(json_.End());
    text = text_;
  }
  RETURN_IF_ERROR(AppendText(text, count, out));
  if (!options_.append_eod || !piece.ends || (*count == 0 && piece.begins)) return OkStatus();
  ids_.assign(1, options_.tokenizer->eod());
  return AppendIds(count, out);
}

Status BatchEncoder::AppendText(std::string_view text, int64_t* count, std::string* out) {
  if (is_bytes_) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    CHECK(WidenTo(options_.token_type, bytes, text.size(), out) == nullptr);
    *count = static_cast<int64_t>(text.size());
    return OkStatus();
  }
  ids_.clear();
  RETURN_IF_ERROR(options_.tokenizer->Encode(text, &ids_));
  return AppendIds(count, out);
}

Status BatchEncoder::AppendIds(int64_t* count, std::string* out) {
  RETURN_IF_ERROR(AppendTokens(ids_, options_.token_type, out));
  *count += static_cast<int64_t>(ids_.size());
  return OkStatus();
}

}  // namespace mt::data
