// What is said where no slot is free for a job that was not submitted yet: by whom slots are held,
// and what else could be done. Pure.
#pragma once

#include <string>
#include <vector>

namespace megatrain::v1 {
class WhoHoldsResponse;
}

namespace mt::client {

// A line a job that holds slots of the kind that is wanted, the largest first, at most ten:
// "demo (RUNNING): 2 CPU slots on n1". Jobs of other namespaces than `job_namespace` have theirs
// before their name. Not cleaned for a terminal.
std::vector<std::string> HolderLines(const megatrain::v1::WhoHoldsResponse& answer,
                                     const std::string& job_namespace);

// The flags with which a reader could be had: "--wait (it begins when a slot is free), --device cpu
// (3 of 4 CPU slots are free), --local (...)". CPU slots are offered where there are any and a GPU
// was wanted, --in-job where `writes_in_job` (WritesInJob).
std::string SlotAdvice(const megatrain::v1::WhoHoldsResponse& answer, bool writes_in_job);

}  // namespace mt::client
