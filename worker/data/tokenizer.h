// Text to token ids and back. Implementations are immutable and thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace mt::data {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string_view name() const = 0;
  virtual int64_t vocab_size() const = 0;  // unpadded; ids are below it
  virtual int32_t eod() const = 0;         // end of document
  // Appends the ids of `text`.
  virtual Status Encode(std::string_view text, std::vector<int32_t>* ids) const = 0;
  // Ids outside [0, vocab_size): kInvalidArgument. EOD decodes to "<eod>".
  virtual StatusOr<std::string> Decode(std::span<const int32_t> ids) const = 0;
};

struct TokenizerConfig {
  std::string type{};      // "byte", "null"
  int64_t vocab_size = 0;  // null only
};
// kInvalidArgument for an unknown type (names the known ones), kUnimplemented for one that is
// declared but not built.
StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(const TokenizerConfig& config);

}  // namespace mt::data
