// The coordinator without sockets: owns all state and wires the parts. One thread calls it: some
// calls, then Commit, again and again; Tick every 100 ms or so. Time comes from the clock that it
// is given.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "daemon/membership/silence_limits.h"

namespace mt::daemon {

class Api;
class Authority;
class EventFeed;
class Feeds;
class History;
class JobKeeper;
class Ledger;
class Reports;
class Sessions;
class Store;

class Core {
 public:
  // All outlive the core. Without a history steps are kept in memory only. The limits are valid
  // (CheckLimits).
  Core(Store* store, const base::Clock* clock, History* history = nullptr,
       const SilenceLimits& limits = {});
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;
  ~Core();

  // Reads the store and begins the next term; to be called once, before anything else. Jobs that
  // run stay as they are; every lease and deadline starts anew.
  Status Recover();

  // A new one at every start.
  const std::string& uid() const;
  Api& api();
  Feeds& feeds();
  EventFeed& events();
  Sessions& sessions();
  Ledger& ledger();
  Authority& authority();
  const Reports& reports() const;
  const JobKeeper& keeper() const;

  // A turn of the loop begins: before any call of it. Time in which the loop stood still counts for
  // no lease and no limit. Without any call all time counts.
  void Turn();
  // Leases, deadlines, retention. Nothing of it while no order is given (authority()).
  void Tick();
  // Ends a round of calls: places waiting jobs, writes, then sends. While the disk is full it
  // returns OK, keeps what is to be written, and gives no order until it is. An error means that
  // the store failed: the coordinator must end.
  Status Commit();
  // The next Commit writes what is not urgent, too: all that readers were shown is on disk then.
  void FlushSoon() { flush_ = true; }
  // Ends every stream and session with `status`. Nothing may be called afterwards but Commit.
  void Shutdown(const Status& status);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
  bool flush_ = false;
};

}  // namespace mt::daemon
