// The job of a checkpoint, for an export of its weights. Pure.
#pragma once

#include <string_view>

#include "common/base/status.h"
#include "worker/checkpoint/format/manifest.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::hf {

// The completed job, with the vocabulary that the word table has: its rows, without padding.
// kFailedPrecondition: a job that this program does not know, or no word table.
StatusOr<megatrain::v1::JobSpec> JobOfCheckpoint(const checkpoint::Manifest& manifest);

// The type of weights that a job computes with: "BF16", "F16", "F64", "F32".
std::string_view TypeThatTrains(const megatrain::v1::JobSpec& job);

}  // namespace mt::hf
