// The processes of a standalone run: starts one per rank, forwards a stop request to rank 0, waits
// for all, reports the first rank that failed, and ends the others when one fails.
#pragma once

#include <string>
#include <vector>

namespace mt::rank {

// The file in the rendezvous folder in which a member leaves its error message.
std::string MemberErrorFile(const std::string& rendezvous, int rank);

// Executes this program `world` times with `arguments`, a rendezvous folder and a rank, and blocks
// until all have ended. Returns the run's exit code; 128 + n if the rank at fault was killed by
// signal n. BlockStopSignals must have been called and no thread started. Members die with this
// process.
int RunMembers(int world, const std::vector<std::string>& arguments);

// Called first in a member: makes the kernel kill it when its parent ends.
void DieWithParent();

}  // namespace mt::rank
