// A marker variable limits the re-execution to once.
#include "worker/rank/environment.h"

#include <cerrno>
#include <cstdlib>
#include <unistd.h>
#include <utility>

#include "kernels/cpu/cpu_backend.h"

namespace mt::rank {
namespace {

// Set by ApplyEnvironment before it executes the program again, so that a variable which does not
// keep its value cannot cause an endless loop.
constexpr char kApplied[] = "MT_RANK_ENVIRONMENT";

std::string Get(const std::string& name) {
  const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): before threads
  return value == nullptr ? "" : value;
}

}  // namespace

std::vector<EnvironmentEntry> RankEnvironment(bool may_use_gpu) {
  std::vector<EnvironmentEntry> table = {{"OPENBLAS_CORETYPE", kernels::cpu::OpenBlasCoreType()},
                                         {"OPENBLAS_NUM_THREADS", "1"},
                                         {"OMP_NUM_THREADS", "1"}};
  if (!may_use_gpu) return table;
  // GPU ordinals as in nvidia-smi; one hardware queue per stream, since streams that share a queue
  // can block each other; all kernels loaded before the first step, since loading may synchronise
  // with the device; fp32 products without TF32, whatever the user's shell says. NCCL without
  // multicast in switches, which containers often lack, connected when a group is made, so that
  // what it takes is taken before memory is planned, and without registrations or events for
  // graphs, which peers would have to make together.
  for (const auto& [name, value] : {std::pair{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
                                    {"CUDA_DEVICE_MAX_CONNECTIONS", "32"},
                                    {"CUDA_MODULE_LOADING", "EAGER"},
                                    {"NVIDIA_TF32_OVERRIDE", "0"},
                                    {"NCCL_NVLS_ENABLE", "0"},
                                    {"NCCL_RUNTIME_CONNECT", "0"},
                                    {"NCCL_GRAPH_REGISTER", "0"},
                                    {"NCCL_GRAPH_MIXING_SUPPORT", "0"}}) {
    table.push_back({name, value});
  }
  return table;
}

Status ApplyEnvironment(bool may_use_gpu, char** argv) {
  bool changed = false;
  for (const EnvironmentEntry& entry : RankEnvironment(may_use_gpu)) {
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
