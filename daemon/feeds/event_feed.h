// Events for those who follow them: what is kept in the store, then what each commit adds, without
// gap or double. A reader that is too slow loses the oldest ones and is told how many (A4). Not
// thread-safe (the core's thread), except the subscriptions.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "daemon/ledger/ledger.h"
#include "daemon/telemetry/subscription.h"

namespace mt::daemon {

// An event, or nullptr as the mark that the past is over, which is sent once, and first where there
// is no past.
struct EventItem {
  std::shared_ptr<const v1::Event> event;
  int64_t oldest_seq = 0;  // the oldest event that is still kept; 0: none is
};
using EventSubscription = Subscription<EventItem>;

class EventFeed {
 public:
  // The store outlives the feed.
  explicit EventFeed(Store* store) : store_(store) {}

  struct Query {
    std::string job_uid;  // empty: all jobs and nodes
    int64_t since_seq;    // 0: the newest 100
    int64_t limit;        // at most so many past events, the newest ones
    bool follow;
    std::set<std::string> types;  // empty: all
  };
  // What is kept as of the last commit, then what comes. Errors are those of the store.
  StatusOr<std::shared_ptr<EventSubscription>> Watch(const Query& query);
  void Unwatch(const EventSubscription* subscription);
  // Takes what a commit has written, in order.
  void Publish(const Ledger::Events& events);
  void CloseAll(const Status& status);
  size_t num_readers() const { return readers_.size(); }

 private:
  struct Reader {
    std::shared_ptr<EventSubscription> subscription;
    Query query;
  };
  static bool Wants(const Query& query, const v1::Event& event);

  Store* store_;
  std::vector<Reader> readers_;
};

}  // namespace mt::daemon
