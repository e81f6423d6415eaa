// A job as text: for `mtctl describe`, `-o json`, the checkpoint manifest, and `mtctl explain`.
// Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::spec {

// The set fields as a job file, in the order of job.proto, with durations as "90s" and sizes as
// "64MiB". Defaults are left out for features that are not built and for sections that this job
// does not use (rope without rotary positions, loss_scale without fp16, wsd with another decay).
// LoadJob of the text gives the same job.
std::string ToYaml(const megatrain::v1::JobSpec& job);

// Every set field as JSON, indented by 2. Integers are numbers; durations and sizes are text, as in
// YAML. ParseJob accepts the result.
std::string ToJson(const megatrain::v1::JobSpec& job);

// Hash of the set fields of the whole job, or of one section ("model", "data"), as 32 hex digits;
// equal where ToJson is equal. It is part of the checkpoint manifest, hence stable across hosts and
// versions.
std::string Digest(const megatrain::v1::JobSpec& job, std::string_view section = {});

// What `mtctl explain PATH` prints: type, default, range, values, Megatron's argument, whether it
// is supported, and help; for a section, its fields. "" or "job" denotes the whole job; a leading
// "job." is dropped. NotFound names the nearest field.
StatusOr<std::string> Explain(std::string_view path);

// All fields as one Markdown table, for docs/job-reference.md.
std::string ReferenceTable();

}  // namespace mt::spec
