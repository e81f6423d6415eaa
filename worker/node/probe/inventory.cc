// Keys keep their order, for people who run the probe by hand. All keys are required on reading:
// probe and agent are installed together.
#include "worker/node/probe/inventory.h"

#include <nlohmann/json.hpp>

namespace mt::node {
namespace {

using nlohmann::ordered_json;

ordered_json DeviceJson(const GpuDevice& gpu) {
  return {{"index", gpu.index},
          {"uuid", gpu.uuid},
          {"name", gpu.name},
          {"memory_bytes", gpu.memory_bytes},
          {"free_bytes", gpu.free_bytes},
          {"compute_capability", gpu.compute_capability},
          {"pci_bus_id", gpu.pci_bus_id},
          {"numa_node", gpu.numa_node},
          {"nvlink_peers", gpu.nvlink_peers},
          {"power_limit_watts", gpu.power_limit_watts},
          {"error", gpu.error}};
}

GpuDevice ParseDevice(const ordered_json& in) {
  return {.index = in.at("index").get<int>(),
          .uuid = in.at("uuid").get<std::string>(),
          .name = in.at("name").get<std::string>(),
          .memory_bytes = in.at("memory_bytes").get<int64_t>(),
          .free_bytes = in.at("free_bytes").get<int64_t>(),
          .compute_capability = in.at("compute_capability").get<std::string>(),
          .pci_bus_id = in.at("pci_bus_id").get<std::string>(),
          .numa_node = in.at("numa_node").get<int>(),
          .nvlink_peers = in.at("nvlink_peers").get<std::vector<std::string>>(),
          .power_limit_watts = in.at("power_limit_watts").get<double>(),
          .error = in.at("error").get<std::string>()};
}

}  // namespace

std::string ToJson(const GpuInventory& inventory) {
  ordered_json devices = ordered_json::array();
  for (const GpuDevice& gpu : inventory.devices) devices.push_back(DeviceJson(gpu));
  const ordered_json out = {{"driver_version", inventory.driver_version},
                            {"error", inventory.error},
                            {"devices", std::move(devices)}};
  // Bytes of a name that are not UTF-8 are replaced.
  return out.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

StatusOr<GpuInventory> GpuInventoryFromJson(std::string_view text) {
  try {
    const ordered_json in = ordered_json::parse(text);
    GpuInventory inventory{.driver_version = in.at("driver_version").get<std::string>(),
                           .error = in.at("error").get<std::string>(),
                           .devices = {}};
    for (const ordered_json& device : in.at("devices"))
      inventory.devices.push_back(ParseDevice(device));
    return inventory;
  } catch (const ordered_json::exception& error) {
    return base::DataLoss("not an inventory of GPUs: {}", error.what());
  }
}

}  // namespace mt::node
