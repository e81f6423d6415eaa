// What users ask for: the calls of api.proto without gRPC, by concept. Not thread-safe (the core's
// thread).
#pragma once

#include "daemon/api/admin_api.h"
#include "daemon/api/jobs_api.h"
#include "daemon/api/nodes_api.h"
#include "daemon/api/operations_api.h"
#include "daemon/api/orphans_api.h"
#include "daemon/api/reader_leases.h"
#include "daemon/api/request_book.h"
#include "daemon/api/slot_holders.h"
#include "daemon/api/streams_api.h"
#include "daemon/api/verbs_api.h"

namespace mt::daemon {

class Authority;

class Api {
 public:
  struct Parts {
    // Asked by every call that changes something, first of all.
    const Authority* authority;
    Ledger* ledger;
    LeaseTable* leases;
    JobKeeper* keeper;
    Placer* placer;
    Feeds* feeds;
    EventFeed* events;
    Sessions* sessions;
    NodeRemoval* removal;
    RestoreGate* restore_gate;
    std::function<Status()> begin_restore;
    Orphans* orphans;
    const base::Clock* clock;
    const base::Clock* own_time;  // of leases
  };
  // All parts outlive it.
  explicit Api(const Parts& parts);
  Api(const Api&) = delete;
  Api& operator=(const Api&) = delete;

  JobsApi& jobs() { return jobs_; }
  VerbsApi& verbs() { return verbs_; }
  OperationsApi& operations() { return operations_; }
  StreamsApi& streams() { return streams_; }
  NodesApi& nodes() { return nodes_; }
  AdminApi& admin() { return admin_; }
  OrphansApi& orphans() { return orphans_; }
  ReaderLeases& reader_leases() { return reader_leases_; }
  SlotHolders& slot_holders() { return slot_holders_; }

 private:
  RequestBook requests_;
  OperationsApi operations_;
  JobsApi jobs_;
  VerbsApi verbs_;
  StreamsApi streams_;
  NodesApi nodes_;
  AdminApi admin_;
  OrphansApi orphans_;
  ReaderLeases reader_leases_;
  SlotHolders slot_holders_;
};

}  // namespace mt::daemon
