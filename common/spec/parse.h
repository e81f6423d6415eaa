// Text to JobSpec: YAML (hence JSON) and overrides `--set a.b=v`. Checks names and types only;
// values are checked by common/spec/validate.h. Texts have at most kMaxTextBytes, nesting is
// bounded, and anchors, aliases and duplicate keys are refused. Any bytes are safe to pass. Pure
// except for LoadJobFile, which reads a file; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/spec/fault.h"

namespace megatrain::v1 {
class JobSpec;
}

namespace mt::spec {

struct ValidateContext;

// Largest accepted text (A2 of docs/design/control-plane.md#numbers).
inline constexpr size_t kMaxTextBytes = size_t{1} << 20;

// Sets in *job the fields that the text, and then the overrides, give, and no others (no defaults).
// An override is "training.lr=1e-3"; its value is read as YAML; null or an empty value unsets the
// field. With faults, *job holds the fields that could be read.
[[nodiscard]] Faults ParseJob(std::string_view text, const std::vector<std::string>& overrides,
                              megatrain::v1::JobSpec* job);

// ParseJob, then CompleteJob (validate.h), with the faults of both; a field that did not parse is
// not reported twice.
[[nodiscard]] Faults LoadJob(std::string_view text, const std::vector<std::string>& overrides,
                             const ValidateContext& context, megatrain::v1::JobSpec* job);

// LoadJob of a file's content. A file that cannot be read is a fault whose path is the file's.
[[nodiscard]] Faults LoadJobFile(const std::string& path, const std::vector<std::string>& overrides,
                                 const ValidateContext& context, megatrain::v1::JobSpec* job);

}  // namespace mt::spec
