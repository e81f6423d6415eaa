// The live line of a training job: step and total, bar, ETA, the metrics that StepRecord declares
// for it, for jobs of several ranks the mesh, what is shown unless it is zero, and what the job
// does besides. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace megatrain::v1 {
class Job;
class StepRecord;
}  // namespace megatrain::v1

namespace mt::client {

// "  120/1000 [==>       ] 12%  eta 2m05s  loss 3.2154  lr 6.00e-04  gnorm 1.23  8.1k tok/s  0.05
// TFLOP/s  61 MiB  tp 2 x pp 2 x dp 1  bubble 12%". In `width` characters: what does not fit is
// left out as whole fields, the bar first, then from the right; the step, a failed save and `doing`
// (see ActivityText; may be empty) last. Width 0 is for elsewhere than a terminal: every field, no
// bar. `seconds_per_step` is a smoothed step time, from which the ETA follows; 0: unknown.
std::string LiveLine(const megatrain::v1::Job& job, const megatrain::v1::StepRecord& step,
                     double seconds_per_step, std::string_view doing, int width);

}  // namespace mt::client
