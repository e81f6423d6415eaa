// The agent's slots: what is said of them, and who may have them (agent.h).
#include "common/base/log.h"
#include "megatrain/v1/worker.pb.h"
#include "worker/node/agent/agent.h"

namespace mt::node {

using megatrain::v1::Assign;
using megatrain::v1::Placement;
using megatrain::v1::Slot;
using megatrain::v1::WorkerMessage;

int Agent::num_used_slots() const {
  return CountSlots(/*gpus=*/true).used + CountSlots(/*gpus=*/false).used;
}

Agent::SlotCount Agent::CountSlots(bool gpus) const {
  SlotCount count;
  for (int slot = 0; slot < slots_.size(); ++slot) {
    if (slots_.IsGpu(slot) != gpus) continue;
    if (SlotUser(slot) != nullptr) {
      ++count.used;
    } else if (!guard_.OutOfOrder(slots_.GpuOf(slot)).empty()) {
      ++count.out_of_order;
    } else {
      ++count.free;
    }
  }
  return count;
}

// By its number, as the coordinator knows it, and by its GPU: a rank of an earlier agent, which may
// have offered other slots, keeps both.
const Allocation* Agent::SlotUser(int slot) const {
  const std::string gpu = slots_.GpuOf(slot);
  for (const auto& [job, allocation] : allocations_) {
    if (allocation->UsesSlot(slot) || (!gpu.empty() && allocation->UsesGpu(gpu)))
      return allocation.get();
  }
  return nullptr;
}

Status Agent::CheckSlot(int slot, const Assign& assign) const {
  const bool wants_gpu = assign.spec().placement().device() == Placement::DEVICE_GPU;
  if (wants_gpu != slots_.IsGpu(slot)) {
    return base::InvalidArgument("slot {} is a {} slot, the job wants {} slots", slot,
                                 slots_.IsGpu(slot) ? "GPU" : "CPU", wants_gpu ? "GPU" : "CPU");
  }
  if (const Allocation* user = SlotUser(slot)) {
    return base::FailedPrecondition("slot {} is used by job {} epoch {}", slot, user->job_uid(),
                                    user->epoch());
  }
  const std::string why = guard_.OutOfOrder(slots_.GpuOf(slot));
  if (!why.empty()) return base::FailedPrecondition("slot {} is out of order: {}", slot, why);
  return OkStatus();
}

void Agent::DescribeSlot(int slot, Slot* out) const {
  slots_.Describe(slot, out);
  if (const Allocation* user = SlotUser(slot)) out->set_job_uid(user->job_uid());
  out->set_out_of_order(guard_.OutOfOrder(slots_.GpuOf(slot)));
}

void Agent::ReportSlots() {
  WorkerMessage message;
  for (int slot = 0; slot < slots_.size(); ++slot)
    DescribeSlot(slot, message.mutable_slots_changed()->add_slots());
  message.mutable_slots_changed()->set_gpu_problem(GpuProblem());
  Report(std::move(message));
}

std::string Agent::GpuProblem() const {
  const std::string& news = survey_.news();
  if (config_.gpus.problem.empty() || news.empty()) return config_.gpus.problem + news;
  return fmt::format("{}; {}", config_.gpus.problem, news);
}

}  // namespace mt::node
