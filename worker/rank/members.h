// The processes of a standalone run: starts one per rank, passes a stop on to rank 0, waits, names
// the first that failed, ends the others when one does.
#pragma once

#include <string>
#include <vector>

namespace mt::rank {

// Where a member leaves its error, in the rendezvous folder.
std::string MemberErrorFile(const std::string& rendezvous, int rank);

// Runs this program anew `world` times with `arguments` and a rank; BlockStopSignals was called, no
// thread was started. The run's exit code; 128 + n where the rank at fault was killed by signal n.
// Members die with this process.
int RunMembers(int world, const std::vector<std::string>& arguments);

// In a member, first thing: the kernel kills it when its parent ends.
void DieWithParent();

}  // namespace mt::rank
