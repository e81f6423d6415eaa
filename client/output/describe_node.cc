// GPUs and CPU slots are two tables, as they have little in common.
#include "client/output/describe_node.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "client/output/description.h"
#include "client/output/format.h"
#include "megatrain/v1/types.pb.h"

namespace mt::client {
namespace {

std::string SlotState(const v1::Slot& slot) {
  if (!slot.job_uid().empty()) return "job " + slot.job_uid();
  return slot.out_of_order().empty() ? "free" : "out of order: " + slot.out_of_order();
}

std::string NumaText(const v1::GpuFacts& gpu) {
  return gpu.numa_node() < 0 ? "-" : std::to_string(gpu.numa_node());
}

// The slots of the GPUs that this one reaches over NVLink; GPUs of the host without a slot are
// counted.
std::string PeersText(const v1::GpuFacts& gpu, const std::map<std::string, int>& slot_of) {
  std::string text;
  int others = 0;
  for (const std::string& peer : gpu.nvlink_peers()) {
    const auto found = slot_of.find(peer);
    others += found == slot_of.end() ? 1 : 0;
    if (found != slot_of.end()) text += fmt::format("{}{}", text.empty() ? "" : ",", found->second);
  }
  if (others > 0) text += fmt::format("{}{} not offered", text.empty() ? "" : " + ", others);
  return text.empty() ? "-" : text;
}

std::string GpuTable(const v1::Node& node) {
  std::map<std::string, int> slot_of;
  for (const v1::Slot& slot : node.slots()) {
    if (slot.device() == v1::GPU) slot_of[slot.gpu().uuid()] = slot.index();
  }
  Rows rows = {{"SLOT", "NAME", "MEMORY", "UUID", "CC", "PCI", "NUMA", "NVLINK", "POWER", "STATE"}};
  for (const v1::Slot& slot : node.slots()) {
    if (slot.device() != v1::GPU) continue;
    const v1::GpuFacts& gpu = slot.gpu();
    rows.push_back({std::to_string(slot.index()), gpu.name(), FormatBytes(gpu.memory_bytes()),
                    gpu.uuid(), gpu.compute_capability(), gpu.pci_bus_id(), NumaText(gpu),
                    PeersText(gpu, slot_of), fmt::format("{:.0f} W", gpu.power_limit_watts()),
                    SlotState(slot)});
  }
  return Table(rows);
}

std::string CpuTable(const v1::Node& node) {
  Rows rows = {{"SLOT", "STATE"}};
  for (const v1::Slot& slot : node.slots()) {
    if (slot.device() != v1::GPU) rows.push_back({std::to_string(slot.index()), SlotState(slot)});
  }
  return Table(rows);
}

}  // namespace

std::string DescribeNode(const v1::Node& node, const TableArgs& args) {
  Description out;
  const std::string state = v1::NodeState_Name(node.state()).substr(5);
  out.Add("Name", node.name());
  out.Add("State", Paint(args.style, ToneOfState(state), state));
  if (!node.refused_claim().empty())
    out.Add("Refused claim", Paint(args.style, Tone::kBad, node.refused_claim()));
  out.Add("UID", node.uid());
  out.Add("Address", node.address());
  out.Add("Version", node.version());
  out.Add("Cores", std::to_string(node.cores()));
  out.Add("Memory", FormatBytes(node.memory_bytes()));
  out.Add("Registered", TimeText(args.style, node.registered_us()));
  out.Add("Heartbeat", TimeText(args.style, node.last_heartbeat_us()));
  out.Add("Checkpoint root", node.checkpoint_root_id().empty()
                                 ? "without identity: missing, or not writable"
                                 : node.checkpoint_root_id());
  std::map<std::string, std::string> labels(node.labels().begin(), node.labels().end());
  for (const auto& [name, value] : labels) out.Add("Label", fmt::format("{}={}", name, value));
  if (!node.gpu_problem().empty())
    out.Add("GPU problem", Paint(args.style, Tone::kBad, node.gpu_problem()));
  const auto gpus = std::count_if(node.slots().begin(), node.slots().end(),
                                  [](const v1::Slot& s) { return s.device() == v1::GPU; });
  if (gpus > 0) {
    const auto first = std::find_if(node.slots().begin(), node.slots().end(),
                                    [](const v1::Slot& s) { return s.device() == v1::GPU; });
    out.Add("Driver", first->gpu().driver_version());
    out.Raw("GPU slots:\n" + Indent(GpuTable(node)));
  }
  if (node.slots_size() > gpus) out.Raw("CPU slots:\n" + Indent(CpuTable(node)));
  return out.text();
}

}  // namespace mt::client
