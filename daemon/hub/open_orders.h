// The orders (assignments, commands, requests for what is held) that one session's worker has not
// answered. While one is open, what the worker holds may be ahead of, or behind, what the ledger
// says. An order counts for P6, told by the session's heartbeats; after that its answer is not
// waited for any more. Not thread-safe (the core's thread).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace megatrain::v1 {
class CoordinatorMessage;
class WorkerMessage;
}  // namespace megatrain::v1

namespace mt::daemon {

class OpenOrders {
 public:
  // Takes note of messages that are orders, and of messages that answer one; others are nothing.
  void Sent(const megatrain::v1::CoordinatorMessage& message);
  void Answered(const megatrain::v1::WorkerMessage& message);
  // Another heartbeat has come.
  void Beat();

  bool empty() const { return sent_.empty(); }
  // Whether an order on this epoch of the job is open.
  bool Concerns(std::string_view job_uid, int64_t epoch) const;
  // Whether what is held was asked for within P6.
  bool AskedForHeld() const { return beats_ < asked_until_; }

 private:
  struct Order {
    std::string job_uid;
    int64_t epoch = 0;
    int64_t sent_at = 0;  // number of heartbeats before it
  };
  int64_t beats_ = 0;
  int64_t asked_until_ = 0;
  std::map<std::string, Order, std::less<>> sent_;  // by id
};

}  // namespace mt::daemon
