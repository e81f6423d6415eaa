// A marker variable limits the re-execution to once.
#include "worker/rank/environment.h"

#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "common/base/log.h"
#include "kernels/cpu/cpu_backend.h"
#include "worker/comm/host_identity.h"

namespace mt::rank {
namespace {

// Set by ApplyEnvironment before it executes the program again, so that a variable which does not
// keep its value cannot cause an endless loop: kDone and what was cleared.
constexpr char kApplied[] = "MT_RANK_ENVIRONMENT";
constexpr std::string_view kDone = "applied";

std::string Get(const std::string& name) {
  const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): before threads
  return value == nullptr ? "" : value;
}

}  // namespace

std::vector<EnvironmentEntry> RankEnvironment(bool may_use_gpu, const std::string& node) {
  std::vector<EnvironmentEntry> table = {{"OPENBLAS_CORETYPE", kernels::cpu::OpenBlasCoreType()},
                                         {"OPENBLAS_NUM_THREADS", "1"},
                                         {"OMP_NUM_THREADS", "1"}};
  if (!may_use_gpu) return table;
  // GPU ordinals as in nvidia-smi; one hardware queue per stream, since streams that share a queue
  // can block each other; all kernels loaded before the first step, since loading may synchronise
  // with the device; fp32 products without TF32, whatever the user's shell says. NCCL without
  // multicast in switches, which containers often lack, connected when a group is made, so that
  // what it takes is taken before memory is planned, and without registrations for graphs, which
  // peers would have to make together.
  for (const auto& [name, value] : {std::pair{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"},
                                    {"CUDA_DEVICE_MAX_CONNECTIONS", "32"},
                                    {"CUDA_MODULE_LOADING", "EAGER"},
                                    {"NVIDIA_TF32_OVERRIDE", "0"},
                                    {"NCCL_NVLS_ENABLE", "0"},
                                    {"NCCL_RUNTIME_CONNECT", "0"},
                                    {"NCCL_GRAPH_REGISTER", "0"}}) {
    table.push_back({name, value});
  }
  // Ranks of one node, and no others, are on one host for NCCL: two nodes on one machine take its
  // network. It needs no more for that, neither NCCL_P2P_DISABLE nor NCCL_SHM_DISABLE, which would
  // act between the ranks of one node as well.
  if (!node.empty()) table.push_back({"NCCL_HOSTID", comm::HostIdentity(node)});
  // What a communicator is made with (worker/comm/nccl) would lose against these; without mixing
  // support a replay beside a call of the same communicator gives wrong data, and no error.
  for (const char* const name : {"NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_COMM_BLOCKING",
                                 "NCCL_COMM_SPLIT_SHARE_RESOURCES", "NCCL_GRAPH_MIXING_SUPPORT"}) {
    table.push_back({name, std::nullopt});
  }
  return table;
}

Status ApplyEnvironment(bool may_use_gpu, const std::string& node, char** argv) {
  bool changed = false;
  std::string cleared;
  for (const EnvironmentEntry& entry : RankEnvironment(may_use_gpu, node)) {
    if (Get(entry.name) == entry.value.value_or("")) continue;
    changed = true;
    if (entry.value) {
      ::setenv(entry.name.c_str(), entry.value->c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    } else {
      cleared += fmt::format(" {}={}", entry.name, Get(entry.name));
      ::unsetenv(entry.name.c_str());  // NOLINT(concurrency-mt-unsafe)
    }
  }
  if (!changed || !Get(kApplied).empty()) return OkStatus();
  ::setenv(kApplied, fmt::format("{}{}", kDone, cleared).c_str(),
           1);  // NOLINT(concurrency-mt-unsafe)
  ::execv("/proc/self/exe", argv);
  return base::ErrnoError(errno, "execute mt-rank anew");
}

void TellCleared() {
  const std::string applied = Get(kApplied);
  if (applied.size() <= kDone.size()) return;
  log::Warn("variables that would override what the program sets were cleared",
            {{"cleared", applied.substr(kDone.size() + 1)}});
}

}  // namespace mt::rank
