// Makes the five parts of the API, in an order in which each finds those that it calls.
#include "daemon/api/api.h"

namespace mt::daemon {

Api::Api(const Parts& parts)
    : requests_(parts.ledger),
      operations_(parts.ledger, parts.leases, parts.clock),
      jobs_({.ledger = parts.ledger,
             .keeper = parts.keeper,
             .placer = parts.placer,
             .requests = &requests_}),
      verbs_({.ledger = parts.ledger,
              .keeper = parts.keeper,
              .placer = parts.placer,
              .requests = &requests_,
              .operations = &operations_}),
      streams_(parts.ledger, parts.feeds, parts.events),
      nodes_({.ledger = parts.ledger,
              .leases = parts.leases,
              .placer = parts.placer,
              .sessions = parts.sessions}) {}

}  // namespace mt::daemon
