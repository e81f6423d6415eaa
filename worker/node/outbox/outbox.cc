// A deque in the order of the numbers: acknowledgements remove from its front.
#include "worker/node/outbox/outbox.h"

#include <utility>
#include <vector>

#include "megatrain/v1/worker.pb.h"

namespace mt::node {

using megatrain::v1::StepsReport;
using megatrain::v1::WorkerMessage;

Outbox::Outbox(int64_t max_steps) : max_steps_(max_steps) {}
Outbox::~Outbox() = default;

const WorkerMessage& Outbox::Add(WorkerMessage message, Acked acked) {
  message.set_seq(next_seq_++);
  num_steps_ += message.steps().steps_size();
  reports_.push_back({std::make_unique<WorkerMessage>(std::move(message)), std::move(acked)});
  if (num_steps_ > max_steps_) ThinSteps();
  return *reports_.back().message;
}

void Outbox::Acknowledge(int64_t seq) {
  std::vector<Acked> told;
  while (!reports_.empty() && reports_.front().message->seq() <= seq) {
    num_steps_ -= reports_.front().message->steps().steps_size();
    if (reports_.front().acked) told.push_back(std::move(reports_.front().acked));
    reports_.pop_front();
  }
  for (const Acked& acked : told) acked();
}

void Outbox::ForEach(const std::function<void(const WorkerMessage&)>& visit) const {
  for (const Entry& entry : reports_) visit(*entry.message);
}

// Drops every second one of the older half of all step records, and reports that are left without
// any, so numbers may have gaps. The newest report is never touched: Add returns a reference to it.
void Outbox::ThinSteps() {
  const int64_t half = num_steps_ / 2;
  int64_t seen = 0;
  std::deque<Entry> kept;
  for (Entry& entry : reports_) {
    const bool last = &entry == &reports_.back();
    if (entry.message->has_steps() && !last && seen < half) {
      auto& steps = *entry.message->mutable_steps()->mutable_steps();
      StepsReport thinned;
      for (auto& step : steps) {
        if (seen++ % 2 == 0) {
          thinned.add_steps()->Swap(&step);
        } else {
          ++thinned_steps_;
          --num_steps_;
        }
      }
      steps.Swap(thinned.mutable_steps());
      if (steps.empty()) continue;
    }
    kept.push_back(std::move(entry));
  }
  reports_ = std::move(kept);
}

}  // namespace mt::node
