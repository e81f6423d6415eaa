// Measures the free space of the agent's folders at an interval and exports it as
// mt_storage_free_bytes{root}. Has a thread of its own, because statvfs on a file server that hangs
// blocks.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "common/metrics/registry.h"

namespace mt::node {

class StorageWatch {
 public:
  // `roots`: paths by the value of their label `root`. Starts the thread.
  StorageWatch(const std::map<std::string, std::string>& roots, const metrics::Labels& labels,
               metrics::Registry* registry,
               std::chrono::milliseconds interval = std::chrono::seconds(10));
  // Joins the thread; blocks while a measurement is running.
  ~StorageWatch();
  StorageWatch(const StorageWatch&) = delete;
  StorageWatch& operator=(const StorageWatch&) = delete;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace mt::node
