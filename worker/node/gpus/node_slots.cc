// The texts are those that an operator reads in the coordinator's refusals.
#include "worker/node/gpus/node_slots.h"

#include <set>
#include <utility>

#include "common/control/epoch.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::node {
namespace {

std::set<std::string> UuidsOf(const GpuOffer& offer) {
  std::set<std::string> uuids;
  for (const GpuSlot& gpu : offer.gpus) uuids.insert(gpu.device.uuid);
  return uuids;
}

}  // namespace

NodeSlots::NodeSlots(Deps deps)
    : deps_(std::move(deps)),
      table_(deps_.offer, deps_.cpu_slots),
      guard_({.loop = deps_.loop,
              .clock = deps_.clock,
              .probe = deps_.probe,
              .limits = deps_.limits,
              .changed = deps_.changed},
             deps_.offer.gpus),
      survey_({.loop = deps_.loop,
               .probe = deps_.probe,
               .wanted = deps_.gpus_wanted,
               .module = deps_.cuda_module,
               .offered = UuidsOf(deps_.offer),
               .interval = deps_.survey_interval,
               .changed = deps_.changed}) {}

void NodeSlots::Finish() {
  guard_.Finish();
  survey_.Finish();
}

std::optional<NodeSlots::User> NodeSlots::UserOf(int slot) const {
  return deps_.user_of(slot, table_.GpuOf(slot));
}

std::string NodeSlots::OutOfOrder(int slot) const {
  if (const auto broken = broken_.find(slot); broken != broken_.end()) return broken->second;
  return table_.IsGpu(slot) ? guard_.OutOfOrder(table_.GpuOf(slot)) : deps_.cpu_problem;
}

Status NodeSlots::Check(int slot, bool wants_gpu) const {
  if (wants_gpu != table_.IsGpu(slot)) {
    return base::InvalidArgument("slot {} is a {} slot, the job wants {} slots", slot,
                                 table_.IsGpu(slot) ? "GPU" : "CPU", wants_gpu ? "GPU" : "CPU");
  }
  if (const auto user = UserOf(slot)) {
    return base::FailedPrecondition("slot {} is used by job {} epoch {}", slot, user->job_uid,
                                    control::EpochText(user->epoch));
  }
  const std::string why = OutOfOrder(slot);
  if (!why.empty()) return base::FailedPrecondition("slot {} is out of order: {}", slot, why);
  return OkStatus();
}

void NodeSlots::Describe(int slot, megatrain::v1::Slot* out) const {
  table_.Describe(slot, out);
  if (const auto user = UserOf(slot)) out->set_job_uid(user->job_uid);
  out->set_out_of_order(OutOfOrder(slot));
}

std::string NodeSlots::GpuProblem() const {
  const std::string& news = survey_.news();
  if (deps_.offer.problem.empty() || news.empty()) return deps_.offer.problem + news;
  return fmt::format("{}; {}", deps_.offer.problem, news);
}

NodeSlots::Count NodeSlots::CountOf(bool gpus) const {
  Count count;
  for (int slot = 0; slot < size(); ++slot) {
    if (table_.IsGpu(slot) != gpus) continue;
    if (UserOf(slot)) {
      ++count.used;
    } else if (!OutOfOrder(slot).empty()) {
      ++count.out_of_order;
    } else {
      ++count.free;
    }
  }
  return count;
}

void NodeSlots::Break(int slot, const std::string& why) {
  if (!table_.Has(slot)) return;
  broken_[slot] = why + "; in order again once mt-worker is started anew";
  deps_.changed();
}

void NodeSlots::AwaitFree(const std::vector<std::string>& gpus, std::function<void()> done) {
  guard_.AwaitFree(gpus, std::move(done));
}

}  // namespace mt::node
