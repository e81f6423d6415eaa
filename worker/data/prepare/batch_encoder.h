// Turns the text of a batch into the bytes that go into the .bin. One object per thread; it blocks
// on nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "worker/data/prepare/json_text.h"
#include "worker/data/prepare/text_batch.h"
#include "worker/data/token_type.h"
#include "worker/data/tokenizer.h"

namespace mt::data {

struct EncodeOptions {
  const Tokenizer* tokenizer = nullptr;
  TokenType token_type = TokenType::kU16;
  bool append_eod = false;
  std::string jsonl_key{};
  size_t usual_bytes = size_t{2} << 20;  // of a batch's text; room for more is not kept
};

class BatchEncoder {
 public:
  explicit BatchEncoder(const EncodeOptions& options);

  // Sets the batch's tokens and the count of each piece. Where a piece has none that can be
  // encoded, the batch ends before it with an error that names file and line.
  //
  // With append_eod a document's last piece ends with EOD if it has tokens of its own or is not the
  // first piece; a document that has no other token is the writer's to see.
  void Encode(const std::vector<std::string>& inputs, TextBatch* batch);

 private:
  Status EncodePiece(const TextBatch& batch, const TextPiece& piece, int64_t* count,
                     std::string* out);
  Status AppendText(std::string_view text, int64_t* count, std::string* out);
  Status AppendIds(int64_t* count, std::string* out);

  const EncodeOptions options_;
  const bool is_bytes_;
  JsonText json_;
  std::string text_;          // of a line of JSON
  std::vector<int32_t> ids_;  // of a piece
};

// Appends `ids` to `out` as they are in a token file. kInvalidArgument for an id that does not fit.
Status AppendTokens(const std::vector<int32_t>& ids, TokenType type, std::string* out);

}  // namespace mt::data
