// Orders by an id that their answers name: a command's own, or one made of job and epoch.
#include "daemon/hub/open_orders.h"

#include <fmt/format.h>

#include "common/control/numbers.h"
#include "megatrain/v1/worker.pb.h"

namespace mt::daemon {
namespace {

namespace v1 = megatrain::v1;

// P6 in heartbeats.
constexpr int64_t kOpenBeats = control::kPlacementAnswer / control::kHeartbeatInterval;
constexpr std::string_view kHeldId = "held";

std::string AssignId(std::string_view job_uid, int64_t epoch) {
  return fmt::format("assign/{}/{}", job_uid, epoch);
}

}  // namespace

void OpenOrders::Sent(const v1::CoordinatorMessage& message) {
  if (message.has_assign()) {
    const v1::Assign& assign = message.assign();
    sent_[AssignId(assign.job_uid(), assign.epoch())] = {assign.job_uid(), assign.epoch(), beats_};
  } else if (message.has_command()) {
    const v1::Command& command = message.command();
    sent_[command.command_id()] = {command.job_uid(), command.epoch(), beats_};
  } else if (message.has_held_request()) {
    asked_until_ = beats_ + kOpenBeats;
    sent_[std::string(kHeldId)] = {"", 0, beats_};
  }
}

void OpenOrders::Answered(const v1::WorkerMessage& message) {
  if (message.has_assignment_reply()) {
    sent_.erase(AssignId(message.assignment_reply().job_uid(), message.assignment_reply().epoch()));
  } else if (message.has_command_ack()) {
    sent_.erase(message.command_ack().command_id());
  } else if (message.has_held_report()) {
    sent_.erase(std::string(kHeldId));
  }
}

void OpenOrders::Beat() {
  ++beats_;
  std::erase_if(sent_,
                [this](const auto& order) { return order.second.sent_at + kOpenBeats < beats_; });
}

bool OpenOrders::Concerns(std::string_view job_uid, int64_t epoch) const {
  for (const auto& [id, order] : sent_) {
    if (order.job_uid == job_uid && order.epoch == epoch) return true;
  }
  return false;
}

}  // namespace mt::daemon
