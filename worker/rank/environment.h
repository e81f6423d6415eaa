// Environment variables that a rank's libraries read when they are loaded, in one table. main
// applies the table and, if anything changed, executes the program again, because OpenBLAS has read
// its variables before main runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace mt::rank {

struct EnvironmentEntry {
  std::string name;
  std::optional<std::string> value;  // none: it must not be set
};

// The table; with `may_use_gpu` it includes CUDA's and NCCL's variables, of a rank of `node`
// (empty: of no cluster) the host that NCCL takes it to be on. The OpenBLAS core type is the one
// detected or set by the environment. It is pinned so that all ranks, reruns and resumes multiply
// with the same kernels, because bits differ between core types. OpenBLAS is limited to one thread:
// the backend divides products among its own threads.
std::vector<EnvironmentEntry> RankEnvironment(bool may_use_gpu, const std::string& node);

// Sets the entries that differ and executes this program again with the same arguments. Returns
// only if nothing had to change, or with the error of execv. Call before threads are started.
Status ApplyEnvironment(bool may_use_gpu, const std::string& node, char** argv);

// Logs the variables that ApplyEnvironment has cleared, if any.
void TellCleared();

}  // namespace mt::rank
