// Byte by byte with a table: event files grow by kilobytes a second at most.
#include "common/tensorboard/crc32c.h"

#include <array>
#include <bit>

namespace mt::tensorboard {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected
constexpr uint32_t kMaskDelta = 0xa282ead8;

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t sum = byte;
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? kPolynomial : 0);
    table[byte] = sum;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = MakeTable();

}  // namespace

uint32_t Crc32c(std::string_view data) {
  uint32_t sum = ~uint32_t{0};
  for (const char c : data) sum = kTable[(sum ^ static_cast<uint8_t>(c)) & 0xff] ^ (sum >> 8);
  return ~sum;
}

uint32_t MaskedCrc32c(std::string_view data) { return std::rotr(Crc32c(data), 15) + kMaskDelta; }

}  // namespace mt::tensorboard
