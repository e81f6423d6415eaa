// Reports to the coordinator that must not be lost: numbered from 1, kept until acknowledged, sent
// again after a reconnect. Bounded in the only thing that grows without end, steps: beyond the
// bound every second record of the older half goes, and is counted. Loop thread only.
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
  // Called when the coordinator has the report on disk; may be empty. Not called for a report that
  // was thinned away: those after it speak for it.
  using Acked = std::function<void()>;

  explicit Outbox(int64_t max_steps);
  ~Outbox();

  // Gives the message its number and keeps it. The reference is valid until the next call.
  const megatrain::v1::WorkerMessage& Add(megatrain::v1::WorkerMessage message, Acked acked = {});
  // Drops every report with a number at or below this one, then tells those who asked, oldest
  // first.
  void Acknowledge(int64_t seq);
  // Oldest first.
  void ForEach(const std::function<void(const megatrain::v1::WorkerMessage&)>& visit) const;

  int64_t num_reports() const { return static_cast<int64_t>(reports_.size()); }
  int64_t num_steps() const { return num_steps_; }
  // Step records given up since the start.
  int64_t thinned_steps() const { return thinned_steps_; }

 private:
  struct Entry {
    std::unique_ptr<megatrain::v1::WorkerMessage> message;
    Acked acked;
  };

  void ThinSteps();

  const int64_t max_steps_;
  int64_t next_seq_ = 1;
  int64_t num_steps_ = 0;
  int64_t thinned_steps_ = 0;
  std::deque<Entry> reports_;
};

}  // namespace mt::node
