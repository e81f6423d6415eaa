// Holders come by node; here they are put together by job.
#include "client/commands/no_slot.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

namespace v1 = megatrain::v1;

constexpr size_t kMostLines = 10;

const char* SlotKind(v1::DeviceType device) { return device == v1::GPU ? "GPU" : "CPU"; }

struct HeldSlots {
  std::string name;
  int64_t slots = 0;
  std::vector<std::string> nodes;
};

std::string NodesText(const std::vector<std::string>& nodes) {
  if (nodes.size() <= 2) return nodes.front() + (nodes.size() == 2 ? " and " + nodes.back() : "");
  return fmt::format("{} and {} more nodes", nodes.front(), nodes.size() - 1);
}

std::string HolderName(const v1::WhoHoldsResponse::Holder& holder,
                       const std::string& job_namespace) {
  const std::string& space = holder.namespace_();
  const std::string name =
      space.empty() || space == job_namespace ? holder.name() : space + "/" + holder.name();
  if (holder.state() == v1::JOB_STATE_UNSPECIFIED)
    return (name.empty() ? holder.job_uid() : name) + " (not a job of this coordinator)";
  return fmt::format("{} ({})", name, v1::JobState_Name(holder.state()));
}

}  // namespace

std::vector<std::string> HolderLines(const v1::WhoHoldsResponse& answer,
                                     const std::string& job_namespace) {
  std::map<std::string, HeldSlots> by_job;
  for (const v1::WhoHoldsResponse::Holder& holder : answer.holders()) {
    if (holder.device() != answer.device()) continue;
    HeldSlots& held = by_job[holder.job_uid()];
    held.name = HolderName(holder, job_namespace);
    held.slots += holder.slots();
    held.nodes.push_back(holder.node());
  }
  std::vector<HeldSlots> jobs;
  jobs.reserve(by_job.size());
  for (auto& [uid, held] : by_job) jobs.push_back(std::move(held));
  std::ranges::stable_sort(jobs, std::ranges::greater(), &HeldSlots::slots);
  std::vector<std::string> lines;
  for (const HeldSlots& held : jobs) {
    if (lines.size() == kMostLines) {
      lines.push_back(fmt::format("and {} more jobs", jobs.size() - kMostLines));
      break;
    }
    lines.push_back(fmt::format("{}: {} {} slot{} on {}", held.name, held.slots,
                                SlotKind(answer.device()), held.slots == 1 ? "" : "s",
                                NodesText(held.nodes)));
  }
  return lines;
}

std::string SlotAdvice(const v1::WhoHoldsResponse& answer, bool writes_in_job) {
  std::string advice = "--wait (it begins when a slot is free)";
  for (const v1::WhoHoldsResponse::Slots& slots : answer.slots()) {
    if (answer.device() != v1::GPU || slots.device() != v1::CPU_SLOT) continue;
    advice += fmt::format(", --device cpu ({} of {} CPU slots {} free)", slots.free(),
                          slots.total(), slots.free() == 1 ? "is" : "are");
  }
  if (writes_in_job)
    advice += ", --in-job (its ranks write between two steps, with the weights that they have)";
  return advice +
         ", --local (this machine reads it without a slot, where it has the checkpoint's folder)";
}

}  // namespace mt::client
