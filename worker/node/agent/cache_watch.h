// Keeps what lies below the cache root within a size: what was used longest ago goes first, and
// what a builder that crashed has left. A file that is mapped by a rank stays valid for it. Has a
// thread of its own, because storage may hang.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

namespace mt::node {

// Bytes.
struct CacheTrim {
  int64_t removed = 0;
  int64_t left = 0;
  // By the name in the files of who made them, "namespace/job"; "" where a file has none.
  std::map<std::string, int64_t> removed_of{};
  std::map<std::string, int64_t> left_of{};
};

// Once, now. Only files that our caches write are counted and removed: those of the data cache
// (*.mtindex, worker/data/FORMAT.md), used when they were last modified, and their temporary files
// (*.mtindex.tmp.*) that are a day old. What cannot be removed is logged and counts as left. Where
// something was removed a line of the log says whose it was and whose is left.
CacheTrim TrimCache(const std::string& root, int64_t limit, std::filesystem::file_time_type now);

class CacheWatch {
 public:
  // Starts the thread, which trims at once and then at each interval. `limit` in bytes.
  CacheWatch(std::string root, int64_t limit,
             std::chrono::milliseconds interval = std::chrono::minutes(10));
  // Joins the thread; blocks while it trims.
  ~CacheWatch();
  CacheWatch(const CacheWatch&) = delete;
  CacheWatch& operator=(const CacheWatch&) = delete;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace mt::node
