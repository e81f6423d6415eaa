// Strict integers from untrusted JSON. nlohmann converts a fraction or an exponent to an integer
// silently, which is undefined behaviour for values out of range; here they are type errors. Throws
// nlohmann::json::exception.
#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

namespace mt::checkpoint {

// The value as an integer.
inline int64_t Integer(const nlohmann::json& in) {
  return in.get_ref<const nlohmann::json::number_integer_t&>();
}

// The values of an array of integers.
inline std::vector<int64_t> Integers(const nlohmann::json& in) {
  std::vector<int64_t> out;
  for (const nlohmann::json& value : in.get_ref<const nlohmann::json::array_t&>())
    out.push_back(Integer(value));
  return out;
}

}  // namespace mt::checkpoint
