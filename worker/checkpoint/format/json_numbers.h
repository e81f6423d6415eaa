// Strict integers from untrusted JSON. nlohmann converts a fraction or an exponent to an integer
// silently, which is undefined behaviour for values out of range; here they are type errors. And
// reals, of which JSON lacks NaN and the infinities. Throws nlohmann::json::exception.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace mt::checkpoint {

// The value as an integer.
inline int64_t Integer(const nlohmann::json& in) {
  const int64_t value = in.get_ref<const nlohmann::json::number_integer_t&>();
  // What is above the range comes back as a negative value: refused as a text would be.
  if (in.is_number_unsigned() && value < 0) (void)in.get_ref<const nlohmann::json::string_t&>();
  return value;
}

// The values of an array of integers.
inline std::vector<int64_t> Integers(const nlohmann::json& in) {
  std::vector<int64_t> out;
  for (const nlohmann::json& value : in.get_ref<const nlohmann::json::array_t&>())
    out.push_back(Integer(value));
  return out;
}

// A real as JSON: NaN and the infinities as strings.
inline nlohmann::json RealToJson(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

inline double ParseReal(const nlohmann::json& in) {
  if (in.is_number()) return in.get<double>();
  const auto text = in.get<std::string>();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  if (text == "inf") return kInf;
  return text == "-inf" ? -kInf : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace mt::checkpoint
