// A job as text: for describe, `-o json`, the checkpoint manifest, and `mtctl explain`. Pure;
// thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::spec {

// Set fields in the order of job.proto, as a job file: durations "90s", sizes "64MiB". Fields whose
// feature is not built, and those of sections that this job does not use (rope without position
// rope, loss_scale without fp16, wsd), are left out where they hold their default. LoadJob of the
// text gives the same job again.
std::string ToYaml(const megatrain::v1::JobSpec& job);

// Every set field, indented by 2; integers are numbers, durations and sizes text as in YAML. Valid
// input of ParseJob.
std::string ToJson(const megatrain::v1::JobSpec& job);

// 32 hex digits over the set fields of the whole job, or of one section ("model", "data"); equal
// where ToJson is equal. Part of the checkpoint manifest: stable across hosts and versions.
std::string Digest(const megatrain::v1::JobSpec& job, std::string_view section = {});

// What `mtctl explain PATH` prints: type, default, range, values, Megatron's argument, whether it
// is supported, help; for a section its fields. "" or "job" is the whole job; a leading "job." is
// dropped. NotFound names the nearest field.
StatusOr<std::string> Explain(std::string_view path);

// Every field as one Markdown table, for the reference page.
std::string ReferenceTable();

}  // namespace mt::spec
