// A job as a benchmark. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

namespace mt::spec {

// What turns any job file into one of kind bench, as overrides before the user's own: model, data,
// layout, batch and precision stay; length, evaluation, checkpoints and the schedule of the
// learning rate, which a bench has no use for, go.
std::vector<std::string> BenchOverrides();

}  // namespace mt::spec
