// Accumulates faults. Checks ask it which fields are still sound, so that one mistake is reported
// once.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "common/spec/fault.h"

namespace mt::spec {

class FaultList {
 public:
  explicit FaultList(Faults faults = {}) : faults_(std::move(faults)) {}

  void Add(std::string path, std::string message) {
    faults_.push_back({.path = std::move(path), .message = std::move(message)});
  }

  // True when no fault lies on any of these fields or on a section that contains one of them.
  bool Clean(std::initializer_list<std::string_view> paths) const {
    for (const std::string_view path : paths) {
      for (const Fault& fault : faults_) {
        if (Covers(fault.path, path)) return false;
      }
    }
    return true;
  }

  size_t size() const { return faults_.size(); }
  Faults Take() { return std::move(faults_); }

 private:
  static bool Covers(std::string_view above, std::string_view path) {
    if (above.empty()) return false;
    return path.starts_with(above) && (path.size() == above.size() || path[above.size()] == '.');
  }

  Faults faults_;
};

}  // namespace mt::spec
