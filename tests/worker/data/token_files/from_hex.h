// Bytes that another program wrote, as they are printed.
#pragma once

#include <string>
#include <string_view>

namespace mt::data {

inline std::string FromHex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

}  // namespace mt::data
