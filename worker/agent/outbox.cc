#include "worker/agent/outbox.h"

#include <utility>

#include "megatrain/v1/worker.pb.h"

namespace mt::agent {

using megatrain::v1::StepsReport;
using megatrain::v1::WorkerMessage;

Outbox::Outbox(int64_t max_steps) : max_steps_(max_steps) {}
Outbox::~Outbox() = default;

const WorkerMessage& Outbox::Add(WorkerMessage message) {
  message.set_seq(next_seq_++);
  num_steps_ += message.steps().steps_size();
  reports_.push_back(std::make_unique<WorkerMessage>(std::move(message)));
  if (num_steps_ > max_steps_) ThinSteps();
  return *reports_.back();
}

void Outbox::Acknowledge(int64_t seq) {
  while (!reports_.empty() && reports_.front()->seq() <= seq) {
    num_steps_ -= reports_.front()->steps().steps_size();
    reports_.pop_front();
  }
}

void Outbox::ForEach(const std::function<void(const WorkerMessage&)>& visit) const {
  for (const auto& report : reports_) visit(*report);
}

// Of the older half of all step records every second one goes; reports that are left without any go
// with them (numbers may have gaps). The newest report is never touched.
void Outbox::ThinSteps() {
  const int64_t half = num_steps_ / 2;
  int64_t seen = 0;
  std::deque<std::unique_ptr<WorkerMessage>> kept;
  for (auto& report : reports_) {
    const bool last = &report == &reports_.back();
    if (report->has_steps() && !last && seen < half) {
      StepsReport thinned;
      for (auto& step : *report->mutable_steps()->mutable_steps()) {
        if (seen++ % 2 == 0) {
          thinned.add_steps()->Swap(&step);
        } else {
          ++thinned_steps_;
          --num_steps_;
        }
      }
      report->mutable_steps()->mutable_steps()->Swap(thinned.mutable_steps());
      if (report->steps().steps_size() == 0) continue;
    }
    kept.push_back(std::move(report));
  }
  reports_ = std::move(kept);
}

}  // namespace mt::agent
