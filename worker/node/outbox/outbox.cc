// A deque in the order of the numbers: acknowledgements remove from its front. The ranges that the
// reports cover follow upon each other without a gap.
#include "worker/node/outbox/outbox.h"

#include <utility>
#include <vector>

#include "megatrain/v1/worker.pb.h"

namespace mt::node {

using megatrain::v1::StepsReport;
using megatrain::v1::WorkerMessage;

namespace {

int64_t FirstSeq(const WorkerMessage& message) {
  return message.first_seq() != 0 ? message.first_seq() : message.seq();
}

}  // namespace

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

int64_t Outbox::lowest_seq() const {
  return reports_.empty() ? next_seq_ : FirstSeq(*reports_.front().message);
}

// Drops every second one of the older half of all step records, and reports that are left without
// any. The newest report is never touched: Add returns a reference to it; so there is always one
// that covers the numbers of those that went.
void Outbox::ThinSteps() {
  const int64_t half = num_steps_ / 2;
  int64_t seen = 0;
  int64_t uncovered = 0;  // the first number of the reports that went since the last kept one
  int64_t dropped = 0;    // their step records
  std::deque<Entry> kept;
  for (Entry& entry : reports_) {
    WorkerMessage& message = *entry.message;
    const bool last = &entry == &reports_.back();
    if (message.has_steps() && !last && seen < half) {
      const int64_t before = thinned_steps_;
      ThinReport(&message, &seen);
      message.set_dropped_steps(message.dropped_steps() + thinned_steps_ - before);
      if (message.steps().steps().empty()) {
        if (uncovered == 0) uncovered = FirstSeq(message);
        dropped += message.dropped_steps();
        continue;
      }
    }
    if (uncovered != 0) message.set_first_seq(uncovered);
    message.set_dropped_steps(message.dropped_steps() + dropped);
    uncovered = 0;
    dropped = 0;
    kept.push_back(std::move(entry));
  }
  reports_ = std::move(kept);
}

// `seen` counts the step records of all reports so far.
void Outbox::ThinReport(WorkerMessage* message, int64_t* seen) {
  StepsReport thinned;
  for (auto& step : *message->mutable_steps()->mutable_steps()) {
    if ((*seen)++ % 2 == 0) {
      thinned.add_steps()->Swap(&step);
    } else {
      ++thinned_steps_;
      --num_steps_;
    }
  }
  message->mutable_steps()->mutable_steps()->Swap(thinned.mutable_steps());
}

}  // namespace mt::node
