// CRC-32C (Castagnoli), the checksum of TFRecord files. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

namespace mt::tensorboard {

uint32_t Crc32c(std::string_view data);

// As TFRecord stores it: rotated right by 15 bits, plus 0xa282ead8. A sum over data that holds sums
// would be weak otherwise.
uint32_t MaskedCrc32c(std::string_view data);

}  // namespace mt::tensorboard
