// Compares the calls of a group's members where the group itself compares nothing: groups of a
// GPU's memory, in which members that call different things hang or obtain wrong data in silence.
// For tests and jobs with training.debug_collectives.
//
// A thread of each member tells its peers of every call over a group of host memory, and what they
// tell it must fit its own: of a collective the operation, count, type, reduction and root, which
// each member compares with the member before it; of a message the count, the type and the edge,
// and that its peer receives at all. A difference breaks the group with kFailedPrecondition, naming
// both calls; peers that are comparing break theirs with kUnavailable, others hear of it as of any
// failure of a peer. Callers wait for nothing: a difference is found while its calls are under way,
// or after them.
#pragma once

#include <memory>

#include "worker/comm/comm_config.h"
#include "worker/comm/group_factory.h"

namespace mt::comm {

// Makes the groups of `inner`, checked over groups of `hosts` named "calls/NAME". Both must outlive
// the factory and its groups. A group's destructor waits until its peers have compared all calls
// too: at most some seconds, or, while members still connect, config.connect_timeout.
std::unique_ptr<GroupFactory> MakeCheckedFactory(GroupFactory* inner, GroupFactory* hosts,
                                                 const CommConfig& config);

}  // namespace mt::comm
