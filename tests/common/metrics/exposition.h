// Parses Prometheus' text format, so that tests can look up series by name and labels.
#pragma once

#include <cmath>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <string_view>

namespace mt::metrics {

class Exposition {
 public:
  explicit Exposition(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("# TYPE ")) {
        const size_t space = line.find(' ', 7);
        types_[line.substr(7, space - 7)] = line.substr(space + 1);
      }
      if (line.empty() || line[0] == '#') continue;
      const size_t space = line.rfind(' ');
      samples_[line.substr(0, space)] = std::stod(line.substr(space + 1));
    }
  }

  // The value of `series` as printed, "mt_x{a=\"b\"}"; NaN where it is missing.
  double Value(std::string_view series) const {
    const auto it = samples_.find(std::string(series));
    return it == samples_.end() ? std::numeric_limits<double>::quiet_NaN() : it->second;
  }
  bool Has(std::string_view series) const { return samples_.contains(std::string(series)); }
  // Number of samples whose line contains `part`; a histogram has one sample per bucket, its sum
  // and its count.
  int Count(std::string_view part = "") const {
    int count = 0;
    for (const auto& [series, value] : samples_) count += series.find(part) != std::string::npos;
    return count;
  }
  const std::map<std::string, double>& samples() const { return samples_; }
  // Names of the families and their types: "counter", "gauge", "histogram".
  const std::map<std::string, std::string>& types() const { return types_; }

 private:
  std::map<std::string, double> samples_;
  std::map<std::string, std::string> types_;
};

}  // namespace mt::metrics
