// Asks `mt-rank --check-blas`, at the agent's start, whether the BLAS that ranks on CPU slots use
// multiplies rightly on this node's processor (worker/rank/check_blas.h). A process of its own,
// since the agent itself does not link it.
#pragma once

#include <chrono>
#include <string>

namespace mt::node {

// Why no rank may compute on this node's processor: what is wrong, and what to do; empty: nothing.
// A program that does not answer, or dies of the processor, is an answer, too. Blocks, for
// `deadline` and a second at most.
std::string FindBlasProblem(const std::string& rank_binary, std::chrono::milliseconds deadline);

}  // namespace mt::node
