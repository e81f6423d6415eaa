// Values come from NVML, apart from the NUMA node, which only sysfs has. GPUs that cannot be
// offered (MIG mode, too old a compute capability) are listed with the reason and what to do.
#include "worker/node/probe/survey.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>

#include "common/base/files.h"
#include "common/gpu/cuda_module.h"
#include "common/nvml/nvml.h"

namespace mt::node {
namespace {

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Index of the GPU that an entry of CUDA_VISIBLE_DEVICES denotes; -1: none, or ambiguous.
int GpuOf(std::string_view entry, const std::vector<std::string>& uuids) {
  const auto count = static_cast<int>(uuids.size());
  int ordinal = -1;
  const char* const end = entry.data() + entry.size();
  const auto number = std::from_chars(entry.data(), end, ordinal);
  if (number.ec == std::errc() && number.ptr == end)
    return ordinal >= 0 && ordinal < count ? ordinal : -1;
  if (!entry.starts_with("GPU-")) return -1;
  int found = -1;
  for (int gpu = 0; gpu < count; ++gpu) {
    if (!uuids[static_cast<size_t>(gpu)].starts_with(entry)) continue;
    if (found >= 0) return -1;
    found = gpu;
  }
  return found;
}

// In MIG mode programs see the GPU's instances, not the GPU.
std::string MigText(int index, const std::string& uuid) {
  return fmt::format(
      "GPU {} ({}) is in MIG mode: not offered; disable it (nvidia-smi -i {} -mig 0) and start the "
      "worker again, or leave this GPU out of --gpus",
      index, uuid, uuid);
}

void FillDevice(const nvml::Library& library, const nvml::Gpu& facts, const std::string& sysfs_root,
                GpuDevice* out) {
  out->uuid = facts.uuid;
  out->name = facts.name;
  out->memory_bytes = facts.memory_bytes;
  out->power_limit_watts = facts.power_limit_watts;
  out->pci_bus_id = SysfsBusId(facts.pci_bus_id);
  out->numa_node = NumaNodeOf(out->pci_bus_id, sysfs_root);
  if (facts.compute_major > 0)
    out->compute_capability = fmt::format("{}.{}", facts.compute_major, facts.compute_minor);
  const auto reading = library.Read(out->index);
  if (reading.ok()) {
    out->free_bytes = reading->free_bytes;
  } else {
    out->error = base::Message(reading.status());
  }
  const std::string unfit =
      facts.compute_major > 0
          ? gpu::CapabilityFault(fmt::format("GPU {} ({})", out->index, out->uuid),
                                 facts.compute_major, facts.compute_minor)
          : "";  // not reported
  if (!unfit.empty()) {
    out->error =
        unfit + ": not offered; leave it out of --gpus, or start the worker with --gpus none";
  }
  if (facts.in_mig_mode) out->error = MigText(out->index, out->uuid);
}

}  // namespace

std::vector<int> VisibleGpus(const char* setting, const std::vector<std::string>& uuids) {
  std::vector<int> visible;
  if (setting == nullptr) {
    for (size_t i = 0; i < uuids.size(); ++i) visible.push_back(static_cast<int>(i));
    return visible;
  }
  std::string_view rest = setting;
  for (bool more = true; more;) {
    const size_t comma = rest.find(',');
    const int gpu = GpuOf(Trimmed(rest.substr(0, comma)), uuids);
    if (gpu < 0 || std::ranges::find(visible, gpu) != visible.end()) break;
    visible.push_back(gpu);
    more = comma != std::string_view::npos;
    if (more) rest.remove_prefix(comma + 1);
  }
  std::ranges::sort(visible);
  return visible;
}

std::string SysfsBusId(const std::string& bus_id) {
  // NVML writes the domain with eight digits, sysfs with four where that suffices.
  constexpr std::string_view kLongDomain = "0000";
  std::string id = bus_id;
  const size_t colon = id.find(':');
  if (colon == 2 * kLongDomain.size() && id.starts_with(kLongDomain))
    id.erase(0, kLongDomain.size());
  for (char& c : id) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return id;
}

int NumaNodeOf(const std::string& sysfs_bus_id, const std::string& sysfs_root) {
  const auto text =
      base::ReadFile(fmt::format("{}/bus/pci/devices/{}/numa_node", sysfs_root, sysfs_bus_id));
  int node = -1;
  if (text.ok()) std::from_chars(text->data(), text->data() + text->size(), node);
  return std::max(node, -1);
}

GpuInventory SurveyGpus(const nvml::Library& library, const char* visible_devices,
                        const std::string& sysfs_root) {
  GpuInventory out{.driver_version = library.driver_version(), .error = {}, .devices = {}};
  std::vector<StatusOr<nvml::Gpu>> all;
  std::vector<std::string> uuids;
  for (int gpu = 0; gpu < library.num_gpus(); ++gpu) {
    all.push_back(library.Describe(gpu));
    uuids.push_back(all.back().ok() ? all.back()->uuid : "");
  }
  const std::vector<int> visible = VisibleGpus(visible_devices, uuids);
  for (const int gpu : visible) {
    GpuDevice device{.index = gpu};
    const auto& facts = all[static_cast<size_t>(gpu)];
    if (facts.ok()) {
      FillDevice(library, *facts, sysfs_root, &device);
    } else {
      device.error = base::Message(facts.status());
    }
    for (const int other : visible) {
      if (!facts.ok() || !library.HaveNvLink(gpu, other)) continue;
      device.nvlink_peers.push_back(uuids[static_cast<size_t>(other)]);
    }
    out.devices.push_back(std::move(device));
  }
  return out;
}

}  // namespace mt::node
