// Inputs of a command of which something is true, told in one sentence however many they are.
#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace mt::data {

class Tally {
 public:
  void Add(const std::string& path) {
    if (count_++ == 0) first_ = path;
  }
  bool any() const { return count_ > 0; }
  // "PATH", or "PATH and 3 more".
  std::string Paths() const {
    return count_ > 1 ? fmt::format("{} and {} more", first_, count_ - 1) : first_;
  }

 private:
  int64_t count_ = 0;
  std::string first_;
};

}  // namespace mt::data
