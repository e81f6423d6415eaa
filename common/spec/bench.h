// Turns any job into a benchmark of itself. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

namespace mt::spec {

// Overrides, to be applied before the user's own, that turn any job file into one of kind bench.
// Model, data, layout, batch and precision stay; length, evaluation, checkpoints and the
// learning-rate schedule, which a benchmark does not use, are removed.
std::vector<std::string> BenchOverrides();

}  // namespace mt::spec
