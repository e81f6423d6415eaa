// Finds and loads NCCL at run time.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "worker/comm/nccl/nccl_api.h"

namespace mt::comm {

// A loaded library. It stays loaded until the process ends.
struct NcclLibrary {
  NcclApi api;
  std::string path;             // that it was loaded from
  int version = 0;              // as ncclGetVersion gives it: 22809 is 2.28.9
  std::string Version() const;  // "2.28.9"
};

// The oldest version that is used: earlier ones ignore settings that ranks rely on.
inline constexpr int kOldestNccl = 22800;

// Where libnccl.so.2 is looked for, in this order: as the dynamic loader finds it
// (LD_LIBRARY_PATH, ld.so.conf), in CUDA's folder, in Python's wheels below /usr, /opt and
// /usr/local.
std::vector<std::string> NcclPaths();

// Loads the library once per process and returns the same one ever after; thread-safe. `paths`
// counts on the first call. kNotFound: there is none (the message lists where it was looked for);
// kFailedPrecondition: it is older than kOldestNccl or lacks a function.
StatusOr<const NcclLibrary*> LoadNccl(const std::vector<std::string>& paths = NcclPaths());

}  // namespace mt::comm
