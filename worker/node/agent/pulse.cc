// Reads the agent's counters; keeps nothing but the last status line, which is sent on change only.
#include "worker/node/agent/pulse.h"

#include <algorithm>
#include <fstream>
#include <unistd.h>

#include <fmt/format.h>

namespace mt::node {
namespace {

constexpr std::chrono::milliseconds kInterval{1000};

// Resident set of this process; 0 if /proc/self/statm cannot be read.
int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total_pages = 0;
  int64_t resident_pages = 0;
  statm >> total_pages >> resident_pages;
  return resident_pages * ::sysconf(_SC_PAGESIZE);
}

WorkerMetrics::Slots SlotsOf(const Agent& agent, bool gpus) {
  const NodeSlots::Count count = agent.slots().CountOf(gpus);
  return {.used = count.used, .free = count.free, .out_of_order = count.out_of_order};
}

}  // namespace

void Pulse::Start() {
  last_status_ = StatusLine();
  parts_.notifier->Ready(last_status_);
  Turn();
}

void Pulse::Turn() {
  const Agent& agent = *parts_.agent;
  parts_.health->Turn(agent.session().registered(), agent.obedience().refusal());
  parts_.metrics->Set({.registered = agent.session().registered(),
                       .disobeys = !agent.obedience().refusal().empty(),
                       .term = agent.obedience().known().term,
                       .gpus = SlotsOf(agent, /*gpus=*/true),
                       .cpu_slots = SlotsOf(agent, /*gpus=*/false),
                       .reports_queued = agent.session().outbox().num_reports(),
                       .steps_dropped = agent.session().outbox().thinned_steps(),
                       .resident_bytes = ResidentBytes()});
  parts_.notifier->Ping();
  if (std::string status = StatusLine(); status != last_status_) {
    parts_.notifier->Status(status);
    last_status_ = std::move(status);
  }
  // The service manager expects one ping within the watchdog's time; it gets at least two.
  const auto half =
      std::chrono::duration_cast<std::chrono::milliseconds>(parts_.notifier->watchdog() / 2);
  const auto next = half.count() > 0 ? std::min(kInterval, half) : kInterval;
  timer_ = parts_.loop->After(next, [this] { Turn(); });
}

std::string Pulse::StatusLine() const {
  const Agent& agent = *parts_.agent;
  const char* standing = agent.session().registered()          ? "registered"
                         : agent.obedience().refusal().empty() ? "looking for the coordinator"
                                                               : "the coordinator is not obeyed";
  return fmt::format("{}; {} of {} slots in use", standing, agent.slots().num_used(),
                     agent.slots().size());
}

}  // namespace mt::node
