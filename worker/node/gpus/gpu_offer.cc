// Each reason tells the operator which GPU it is about and what to do.
#include "worker/node/gpus/gpu_offer.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>

namespace mt::node {
namespace {

std::vector<std::string> Split(std::string_view text) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

bool IsUuid(std::string_view text) {
  constexpr size_t kMaxBytes = 80;
  return text.starts_with("GPU-") && text.size() > 4 && text.size() <= kMaxBytes &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '-'; });
}

void AddProblem(const std::string& text, std::string* problem) {
  *problem += (problem->empty() ? "" : "; ") + text;
}

}  // namespace

StatusOr<GpuInventory> NeedModule(StatusOr<GpuInventory> found, const Status& module) {
  if (!found.ok() || found->devices.empty() || module.ok()) return found;
  return base::FailedPrecondition(
      "{} GPU{} found, but ranks could not use {}: {}; or start the worker with --gpus none",
      found->devices.size(), found->devices.size() == 1 ? "" : "s",
      found->devices.size() == 1 ? "it" : "them", base::Message(module));
}

Status CheckGpusOption(const std::string& wanted) {
  if (wanted == kAllGpus || wanted == kNoGpus) return OkStatus();
  std::set<std::string> seen;
  for (const std::string& uuid : Split(wanted)) {
    if (!IsUuid(uuid) || !seen.insert(uuid).second) {
      return base::InvalidArgument(
          "--gpus {}: must be all, none, or UUIDs as nvidia-smi -L shows them (GPU-8c5c3b0e-...), "
          "separated by commas, each once",
          wanted);
    }
  }
  return OkStatus();
}

GpuOffer OfferGpus(const std::string& wanted, const StatusOr<GpuInventory>& found,
                   const std::function<std::string(int numa_node)>& cpus_of) {
  GpuOffer offer;
  if (wanted == kNoGpus) return offer;
  const bool by_uuid = wanted != kAllGpus;
  if (!found.ok()) {
    const bool in_order = absl::IsNotFound(found.status()) && !by_uuid;
    if (!in_order) offer.problem = base::Message(found.status());
    return offer;
  }
  offer.driver_version = found->driver_version;
  std::set<std::string> missing;
  if (by_uuid) {
    const std::vector<std::string> uuids = Split(wanted);
    missing.insert(uuids.begin(), uuids.end());
  }
  for (const GpuDevice& gpu : found->devices) {
    if (by_uuid && missing.erase(gpu.uuid) == 0) continue;
    if (!gpu.error.empty()) {
      AddProblem(gpu.error, &offer.problem);
      continue;
    }
    offer.gpus.push_back({.device = gpu, .cpus = cpus_of(gpu.numa_node)});
  }
  for (const std::string& uuid : missing) {
    AddProblem(fmt::format("{} of --gpus was not found", uuid), &offer.problem);
  }
  return offer;
}

int DefaultCpuSlots(const GpuOffer& offer, int cores) {
  return offer.gpus.empty() && offer.problem.empty() ? cores : 0;
}

}  // namespace mt::node
