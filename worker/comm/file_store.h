// A rendezvous store in a folder, for processes of one host (or of a shared file system) that run
// without a daemon: mt-rank --standalone, tests. One file per key, renamed into place, so that a
// reader sees all of a value or nothing; the folder starts empty for every run.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "worker/comm/rendezvous_store.h"

namespace mt::comm {

class FileStore final : public RendezvousStore {
 public:
  // The folder is made by the first Set.
  explicit FileStore(std::string folder) : folder_(std::move(folder)) {}

  Status Set(const std::string& key, std::string_view bytes) override;
  // Looks every few milliseconds.
  StatusOr<std::string> Get(const std::string& key, base::MonotonicTime deadline) override;

 private:
  std::string PathOf(const std::string& key) const;

  const std::string folder_;
};

}  // namespace mt::comm
