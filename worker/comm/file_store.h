// A rendezvous store in a folder, for processes that share a file system and run without a daemon
// (mt-rank --standalone, tests). Each key is a file that appears by rename, so that a reader sees a
// whole value or none. Every run needs an empty folder.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "worker/comm/rendezvous_store.h"

namespace mt::comm {

// Thread-safe, and safe among processes.
class FileStore final : public RendezvousStore {
 public:
  // The folder is created by the first Set.
  explicit FileStore(std::string folder) : folder_(std::move(folder)) {}

  Status Set(const std::string& key, std::string_view bytes) override;
  // Polls the folder every 5 ms.
  StatusOr<std::string> Get(const std::string& key, base::MonotonicTime deadline) override;

 private:
  std::string PathOf(const std::string& key) const;

  const std::string folder_;
};

}  // namespace mt::comm
