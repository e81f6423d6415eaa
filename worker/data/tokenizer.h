// Interface between text and token ids. Implementations are immutable and thread-safe.
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
  virtual int64_t vocab_size() const = 0;  // unpadded; every id is below it
  virtual int32_t eod() const = 0;         // id of the end-of-document token
  // Appends the ids of `text` to `ids`. kInvalidArgument for text that has none (null tokenizer).
  virtual Status Encode(std::string_view text, std::vector<int32_t>* ids) const = 0;
  // The text of `ids`; EOD becomes "<eod>". kInvalidArgument for ids outside [0, vocab_size).
  virtual StatusOr<std::string> Decode(std::span<const int32_t> ids) const = 0;
};

// Which tokenizer, as in the job's data.tokenizer.
struct TokenizerConfig {
  std::string type{};      // "byte", "null"
  int64_t vocab_size = 0;  // "null" only
};
// Makes the tokenizer. kInvalidArgument for an unknown type (the message names the known ones) or a
// vocabulary that "null" cannot have; kUnimplemented for a type that is declared but not built.
StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(const TokenizerConfig& config);

}  // namespace mt::data
