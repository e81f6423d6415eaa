// Makes the parts of the API, in an order in which each finds those that it calls.
#include "daemon/api/api.h"

#include "megatrain/v1/api.pb.h"

namespace mt::daemon {

Api::Api(const Parts& parts)
    : requests_(parts.ledger),
      operations_(parts.ledger, parts.leases, parts.clock),
      jobs_({.authority = parts.authority,
             .ledger = parts.ledger,
             .keeper = parts.keeper,
             .placer = parts.placer,
             .requests = &requests_,
             .feeds = parts.feeds}),
      verbs_({.authority = parts.authority,
              .ledger = parts.ledger,
              .keeper = parts.keeper,
              .placer = parts.placer,
              .requests = &requests_,
              .operations = &operations_}),
      streams_(parts.ledger, parts.feeds, parts.events),
      nodes_({.authority = parts.authority,
              .ledger = parts.ledger,
              .leases = parts.leases,
              .placer = parts.placer,
              .sessions = parts.sessions,
              .removal = parts.removal}),
      admin_({.ledger = parts.ledger,
              .authority = parts.authority,
              .restore_gate = parts.restore_gate,
              .sessions = parts.sessions,
              .begin_restore = parts.begin_restore}),
      orphans_(parts.orphans, parts.authority),
      reader_leases_({.ledger = parts.ledger, .keeper = parts.keeper, .clock = parts.own_time}),
      slot_holders_(parts.ledger, parts.placer) {}

}  // namespace mt::daemon
