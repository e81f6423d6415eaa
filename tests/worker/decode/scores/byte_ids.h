// The tokenizer of tests/golden/scores_torch.py: an id a byte of 97, so that its small network has
// a text to score.
#pragma once

#include <string_view>
#include <vector>

#include "worker/data/tokenizer/tokenizer.h"

namespace mt::decode {

class ByteIds final : public data::Tokenizer {
 public:
  std::string_view name() const override { return "byte_ids"; }
  int64_t vocab_size() const override { return 97; }
  int32_t eod() const override { return ends_ ? 96 : data::kNoEod; }
  Status Encode(std::string_view text, std::vector<int32_t>* ids) const override {
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      ids->push_back(byte >= 32 && byte < 127 ? byte - 32 : byte == 10 ? 95 : byte % 95);
    }
    return OkStatus();
  }
  StatusOr<std::string> Decode(std::span<const int32_t>) const override { return std::string(); }

  // Without an end-of-document token.
  static ByteIds Endless() {
    ByteIds made;
    made.ends_ = false;
    return made;
  }

 private:
  bool ends_ = true;
};

}  // namespace mt::decode
