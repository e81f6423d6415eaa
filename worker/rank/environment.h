// The environment that libraries of a rank read when they are loaded: one table. main applies it
// and, where something changed, executes itself anew once, since by then OpenBLAS has read its own.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"

namespace mt::rank {

struct EnvironmentEntry {
  std::string name;
  std::string value;
};

// What a rank runs with; `may_use_gpu`: with what CUDA reads too. The core type is the one that
// OpenBLAS has detected or was told by the environment: written down, so that ranks, reruns and
// resumes multiply with the same kernels (their bits differ between core types). OpenBLAS itself
// has one thread: the backend splits products over its own.
std::vector<EnvironmentEntry> RankEnvironment(bool may_use_gpu);

// Sets the entries that differ and executes this program anew with the same arguments; returns only
// where nothing had to change, or with an error. Before threads start.
Status ApplyEnvironment(bool may_use_gpu, char** argv);

}  // namespace mt::rank
