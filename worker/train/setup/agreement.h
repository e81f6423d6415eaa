// How ranks that set up a run agree: each has a status of its own, and all go on or none does.
#pragma once

#include "common/base/status.h"
#include "worker/checkpoint/exchange.h"

namespace mt::train {

// Collective and blocking. This rank's error or, where it has none, that of another rank, with
// cause NETWORK.
Status Agree(checkpoint::Exchange* exchange, const Status& mine);

}  // namespace mt::train
