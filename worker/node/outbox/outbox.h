// The reports to the coordinator that must not be lost: numbered from 1, kept until acknowledged
// and sent again after a reconnect. Only step records grow without end, so only they are bounded:
// beyond the bound every second record of the older half is dropped and counted. A report that is
// left without any goes, and the next one covers its number (`first_seq`, `dropped_steps`), so that
// the coordinator never sees a number missing that it is not told of. Loop thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

namespace megatrain::v1 {
class WorkerMessage;
}

namespace mt::node {

class Outbox {
 public:
  // Called when the coordinator has the report on disk; may be empty. Not called for a report all
  // of whose steps were dropped: the `acked` of a later report covers it.
  using Acked = std::function<void()>;

  explicit Outbox(int64_t max_steps);
  ~Outbox();

  // Numbers the message and keeps it. The reference is valid until the next call.
  const megatrain::v1::WorkerMessage& Add(megatrain::v1::WorkerMessage message, Acked acked = {});
  // Drops every report whose number is at most `seq`, then runs their `acked`, oldest first.
  void Acknowledge(int64_t seq);
  // Visits the kept reports, oldest first.
  void ForEach(const std::function<void(const megatrain::v1::WorkerMessage&)>& visit) const;

  int64_t num_reports() const { return static_cast<int64_t>(reports_.size()); }
  int64_t num_steps() const { return num_steps_; }
  // The lowest number that a kept report covers, or the next one's; and the highest given so far
  // (0: none).
  int64_t lowest_seq() const;
  int64_t newest_seq() const { return next_seq_ - 1; }
  // Step records dropped since the start.
  int64_t thinned_steps() const { return thinned_steps_; }

 private:
  struct Entry {
    std::unique_ptr<megatrain::v1::WorkerMessage> message;
    Acked acked;
  };

  void ThinSteps();
  void ThinReport(megatrain::v1::WorkerMessage* message, int64_t* seen);

  const int64_t max_steps_;
  int64_t next_seq_ = 1;
  int64_t num_steps_ = 0;
  int64_t thinned_steps_ = 0;
  std::deque<Entry> reports_;
};

}  // namespace mt::node
