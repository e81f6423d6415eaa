// Fields of a JSON object by name, with what is wrong with each and which were taken from their
// defaults. Used by one thread.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace mt::hf {

// A value as messages show it: a file of 1 MiB may be one value.
inline std::string Shown(const nlohmann::json& value) {
  constexpr size_t kMostBytes = 200;
  std::string text =
      value.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMostBytes) text.replace(kMostBytes, std::string::npos, "...");
  return text;
}

class ConfigFields {
 public:
  // The object is borrowed.
  explicit ConfigFields(const nlohmann::json& object) : object_(object) {}

  // Whether the field is there and not null.
  bool Has(const std::string& name) const {
    const auto it = object_.find(name);
    return it != object_.end() && !it->is_null();
  }
  const nlohmann::json& At(const std::string& name) const { return object_.at(name); }

  // An integer from 1 to `max`; a fault where it is missing.
  int64_t Size(const std::string& name, int64_t max) {
    if (!Has(name)) return Fault(name, "is missing"), 1;
    return SizeAt(name, max);
  }
  // The same; where it is missing the default, which is noted.
  int64_t SizeOr(const std::string& name, int64_t max, int64_t missing) {
    if (Has(name)) return SizeAt(name, max);
    Note(name, fmt::to_string(missing));
    return missing;
  }
  // A finite number above 0.
  double RealOr(const std::string& name, double missing) {
    if (!Has(name)) {
      Note(name, fmt::to_string(missing));
      return missing;
    }
    return Real(object_.at(name), name);
  }
  // A number in [0, 1), 0 where it is missing.
  double Share(const std::string& name) {
    if (!Has(name)) return 0;
    const nlohmann::json& value = object_.at(name);
    const double share = value.is_number() ? value.get<double>() : -1;
    if (!(share >= 0 && share < 1)) return Fault(name, "is no number from 0 to below 1"), 0;
    return share;
  }
  bool BoolOr(const std::string& name, bool missing) {
    const auto it = object_.find(name);
    if (it == object_.end()) {
      Note(name, missing ? "true" : "false");
      return missing;
    }
    if (!it->is_boolean()) return Fault(name, "is neither true nor false"), missing;
    return it->get<bool>();
  }
  std::string TextOr(const std::string& name, std::string_view missing) {
    if (!Has(name)) {
      Note(name, missing);
      return std::string(missing);
    }
    if (!object_.at(name).is_string()) return Fault(name, "is no text"), std::string(missing);
    return object_.at(name).get<std::string>();
  }
  // A finite number above 0, of a field of this name.
  double Real(const nlohmann::json& value, const std::string& name) {
    const double real = value.is_number() ? value.get<double>() : 0;
    if (real > 0 && real <= std::numeric_limits<double>::max()) return real;
    return Fault(name, "is no number above 0"), 1;
  }

  void Fault(const std::string& name, std::string_view what) {
    faults_.push_back(fmt::format("{} {}", name, what));
  }
  // What two readers would understand differently, or what is not built.
  void Refuse(std::string text) { refusals_.push_back(std::move(text)); }
  void Say(std::string text) { notes_.push_back(std::move(text)); }

  const std::vector<std::string>& faults() const { return faults_; }
  const std::vector<std::string>& refusals() const { return refusals_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void Note(const std::string& name, std::string_view value) {
    notes_.push_back(fmt::format("{} is missing: {} as in its class", name, value));
  }
  int64_t SizeAt(const std::string& name, int64_t max) {
    const nlohmann::json& value = object_.at(name);
    if (!value.is_number_integer()) return Fault(name, "is no integer"), 1;
    // What is above the range of int64 is negative here.
    const auto size = value.get<int64_t>();
    if (size >= 1 && size <= max) return size;
    return Fault(name, fmt::format("is not from 1 to {}", max)), 1;
  }

  const nlohmann::json& object_;
  std::vector<std::string> faults_, refusals_, notes_;
};

}  // namespace mt::hf
