// The secret by which the coordinator knows this node again (docs/design/control-plane.md#nodes):
// one small file in a folder of the agent's state, STATE/identity (worker/node/ranks/FORMAT.md).
// Loop thread only; Open and Keep block on the disk.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace mt::node {

class SecretFile {
 public:
  // Makes the folder where there is none and reads the secret of `node`. A file that is damaged or
  // of another node counts as none, which is logged. Errors of the file system.
  static StatusOr<SecretFile> Open(const std::string& folder, const std::string& node);

  // Empty and 0: there is none.
  const std::string& secret() const { return secret_; }
  int64_t generation() const { return generation_; }
  // Writes it down, for this user alone, in place of the one before. After OK it survives a power
  // loss; on error the one before stays in use.
  Status Keep(const std::string& secret, int64_t generation);

 private:
  SecretFile(std::string path, std::string node) : path_(std::move(path)), node_(std::move(node)) {}
  void Read();

  std::string path_;
  std::string node_;
  std::string secret_;
  int64_t generation_ = 0;
};

}  // namespace mt::node
