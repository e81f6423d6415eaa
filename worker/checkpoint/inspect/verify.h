// Reads whole checkpoints and holds every rank's manifest and every block of every slice against
// its digest. Blocking; several threads, each with a buffer of fixed size.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/checkpoint/format/checkpoint_id.h"

namespace mt::checkpoint {

// Called by several threads, one at a time.
using BytesProgress = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

struct VerifyArgs {
  std::vector<std::string> folders;  // of checkpoints; a name that tells another one is damage
  int threads = 1;
  BytesProgress progress;  // may be empty
};

// Something that is not as the manifest says.
struct Damage {
  std::string folder;
  std::string file;   // in the folder
  std::string slice;  // "weights/a[0:2, 0:3]"; empty: the whole file
  std::string what;
};

struct VerifyReport {
  int64_t num_checkpoints = 0;
  int64_t num_slices = 0;            // that were read
  int64_t bytes = 0;                 // of these slices
  std::vector<Damage> damage;        // by folder, then in the order of the manifest
  std::vector<std::string> removed;  // folders whose manifest was gone when they had been read
};

// Never fails: what cannot be read is damage.
VerifyReport Verify(const VerifyArgs& args);

}  // namespace mt::checkpoint
