// Which type the code of an .idx means: DeepSpeed's own indexed data sets have the same magic and
// layout as Megatron's but other codes of types.
#include <algorithm>
#include <cstring>
#include <optional>

#include "common/base/log.h"
#include "worker/data/indexed_dataset.h"

namespace mt::data {
namespace {

template <class T>
int64_t IdAt(const std::byte* source, size_t i) {
  T id;
  std::memcpy(&id, source + i * sizeof(T), sizeof(T));
  return id;
}

// What a code means in DeepSpeed's own table where it means something else in Megatron's; ids of
// u32 and u64 are read as signed ones, which hold every id of a vocabulary.
std::optional<TokenType> DeepSpeedType(uint8_t code) {
  if (code == 6) return TokenType::kU16;
  if (code == 7) return TokenType::kI32;
  if (code == 8) return TokenType::kI64;
  return std::nullopt;
}

// Whether the first tokens can be ids. A float of 4 bytes from 1.0 on is at least kFloatOne as an
// integer, ids of 2 bytes read by eights are larger yet, and no vocabulary comes near it.
template <class T>
bool BeginsWithIds(std::string_view bin) {
  constexpr size_t kLooks = 4096;
  constexpr int64_t kFloatOne = 0x3F800000;
  const auto* source = reinterpret_cast<const std::byte*>(bin.data());
  for (size_t i = 0; i < std::min(kLooks, bin.size() / sizeof(T)); ++i) {
    const int64_t id = IdAt<T>(source, i);
    if (id < 0 || id >= kFloatOne) return false;
  }
  return true;
}

}  // namespace

bool IndexedDataset::FillsBin(int64_t token_bytes) const {
  // The last sequence first: it tells the widths apart at once, unless it is empty.
  const int64_t last = num_sequences_ - 1;
  if (last >= 0 && byte_offset(last) != bin_bytes() - length(last) * token_bytes) return false;
  int64_t tokens = 0;
  for (int64_t i = 0; i < num_sequences_; ++i) {
    if (length(i) < 0) return false;
    tokens += length(i);
  }
  return bin_bytes() % token_bytes == 0 && bin_bytes() / token_bytes == tokens;
}

Status IndexedDataset::SettleType(uint8_t code) {
  token_type_ = static_cast<TokenType>(code);
  const std::optional<TokenType> other = DeepSpeedType(code);
  // Without a token u16 is as good, and what other writers of empty pairs mean.
  const bool may_be_other = other && (token_type_ != TokenType::kU16 || bin_bytes() > 0);
  if (may_be_other && FillsBin(SizeOf(*other))) {
    const bool ids = *other == TokenType::kU16 ||
                     (*other == TokenType::kI32 ? BeginsWithIds<int32_t>(bin_.view())
                                                : BeginsWithIds<int64_t>(bin_.view()));
    if (ids) {
      token_type_ = *other;
      log::Info("an .idx with DeepSpeed's codes of types",
                {{"path", idx_path_}, {"code", int{code}}, {"type", Name(*other)}});
    }
  }
  if (SizeOf(token_type_) > 0) return OkStatus();
  return base::InvalidArgument(
      "{}: token type code {} is not an integer type (1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16{}); "
      "write the token ids as integers",
      idx_path_, code,
      other ? fmt::format("; DeepSpeed's {} is not what the {} bytes of the .bin hold",
                          code == 6 ? "u16" : "u32", bin_bytes())
            : "");
}

}  // namespace mt::data
