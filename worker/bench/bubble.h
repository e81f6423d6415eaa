// The bubble that a pipeline's schedule has by itself, to be compared with the one that was
// measured. Pure.
#pragma once

namespace megatrain::v1 {
class JobSpec;
class JobTrace;
}  // namespace megatrain::v1

namespace mt::bench {

// The mean over the stages of the share of a pass in which a stage has nothing to do, where every
// forward and every backward of a chunk takes as long as they did on average over the ranks of the
// trace, communication of tensor ranks included, and transfers take no time. What the measured
// bubble has beyond it are transfers, unequal stages and hosts that are late. `job` is completed
// and resolved; 0 without a pipeline, and where the trace has no forward or no backward.
double BubbleByFormula(const megatrain::v1::JobSpec& job, const megatrain::v1::JobTrace& trace);

}  // namespace mt::bench
