// Element type of a token file. The values are the type codes of Megatron's .idx files and
// therefore persistent (FORMAT.md).
#pragma once

#include <cstdint>
#include <string_view>

namespace mt::data {

enum class TokenType : uint8_t {
  kU8 = 1,
  kI8 = 2,
  kI16 = 3,
  kI32 = 4,
  kI64 = 5,
  // 6 and 7 were swapped between Megatron versions; both are refused as token types. DeepSpeed's
  // own data sets have u16, u32 and u64 under 6, 7 and 8 (IndexedDataset tells them by sizes).
  kF64 = 6,
  kF32 = 7,
  kU16 = 8,
};

// Bytes of one token; 0 for a code that is no integer type.
constexpr int64_t SizeOf(TokenType type) {
  switch (type) {
    case TokenType::kU8:
    case TokenType::kI8:
      return 1;
    case TokenType::kI16:
    case TokenType::kU16:
      return 2;
    case TokenType::kI32:
      return 4;
    case TokenType::kI64:
      return 8;
    case TokenType::kF64:
    case TokenType::kF32:
      return 0;
  }
  return 0;
}

// The type's name in messages: "u8", "i8", "i16", "i32", "i64", "u16" ("f32" and "f64" in errors
// only).
constexpr std::string_view Name(TokenType type) {
  switch (type) {
    case TokenType::kU8:
      return "u8";
    case TokenType::kI8:
      return "i8";
    case TokenType::kI16:
      return "i16";
    case TokenType::kI32:
      return "i32";
    case TokenType::kI64:
      return "i64";
    case TokenType::kF64:
      return "f64";
    case TokenType::kF32:
      return "f32";
    case TokenType::kU16:
      return "u16";
  }
  return "?";
}

// The type that Megatron's preprocessing tool writes for a vocabulary of this size: u16 below
// 65500, else i32.
constexpr TokenType TokenTypeForVocab(int64_t vocab_size) {
  return vocab_size < 65500 ? TokenType::kU16 : TokenType::kI32;
}

}  // namespace mt::data
