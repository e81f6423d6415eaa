// Integers of a JSON document that may hold anything: a fraction or an exponent where an integer
// belongs is a type error (nlohmann would convert it, which is undefined for a value out of range).
// Throws nlohmann::json::exception.
#pragma once

#include <cstdint>
#include <vector>

#include <nlohmann/json.hpp>

namespace mt::checkpoint {

inline int64_t Integer(const nlohmann::json& in) {
  return in.get_ref<const nlohmann::json::number_integer_t&>();
}

inline std::vector<int64_t> Integers(const nlohmann::json& in) {
  std::vector<int64_t> out;
  for (const nlohmann::json& value : in.get_ref<const nlohmann::json::array_t&>())
    out.push_back(Integer(value));
  return out;
}

}  // namespace mt::checkpoint
