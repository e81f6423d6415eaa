// Measures the free space of the agent's folders from time to time, on a thread of its own: a file
// server that hangs must hang nothing else. mt_storage_free_bytes{root}.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "common/metrics/registry.h"

namespace mt::node {

class StorageWatch {
 public:
  // `roots`: folders by the name that the series carries.
  StorageWatch(const std::map<std::string, std::string>& roots, const metrics::Labels& labels,
               metrics::Registry* registry,
               std::chrono::milliseconds interval = std::chrono::seconds(10));
  // Waits for a measurement that is under way.
  ~StorageWatch();
  StorageWatch(const StorageWatch&) = delete;
  StorageWatch& operator=(const StorageWatch&) = delete;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace mt::node
