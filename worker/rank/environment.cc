#include "worker/rank/environment.h"

#include <cerrno>
#include <cstdlib>
#include <unistd.h>

#include "kernels/cpu/cpu_backend.h"

namespace mt::rank {
namespace {

// Set by ApplyEnvironment, so that a library that rewrites the table cannot make a loop of it.
constexpr char kApplied[] = "MT_RANK_ENVIRONMENT";

std::string Get(const std::string& name) {
  const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): before threads
  return value == nullptr ? "" : value;
}

}  // namespace

std::vector<EnvironmentEntry> RankEnvironment() {
  return {{"OPENBLAS_CORETYPE", kernels::cpu::OpenBlasCoreType()},
          {"OPENBLAS_NUM_THREADS", "1"},
          {"OMP_NUM_THREADS", "1"}};
}

Status ApplyEnvironment(char** argv) {
  bool changed = false;
  for (const EnvironmentEntry& entry : RankEnvironment()) {
    if (Get(entry.name) == entry.value) continue;
    changed = true;
    ::setenv(entry.name.c_str(), entry.value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  }
  if (!changed || !Get(kApplied).empty()) return OkStatus();
  ::setenv(kApplied, "applied", 1);  // NOLINT(concurrency-mt-unsafe)
  ::execv("/proc/self/exe", argv);
  return base::ErrnoError(errno, "execute mt-rank anew");
}

}  // namespace mt::rank
