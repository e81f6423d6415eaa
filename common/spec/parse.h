// Text to JobSpec: YAML (and so JSON) plus `--set a.b=v`. Checks names and types only; values are
// checked by common/spec/validate.h. At most kMaxTextBytes; nesting is bounded; anchors, aliases
// and doubled keys are refused. Any bytes are safe to pass. Pure but for LoadJobFile; thread-safe.
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

// A2 of docs/design/control-plane.md#numbers.
inline constexpr size_t kMaxTextBytes = size_t{1} << 20;

// Fills *job with what the text and then the overrides say, and nothing else (no defaults). An
// override is "training.lr=1e-3"; its value is read as YAML; null or an empty value unsets the
// field. With faults, *job holds the rest.
[[nodiscard]] Faults ParseJob(std::string_view text, const std::vector<std::string>& overrides,
                              megatrain::v1::JobSpec* job);

// ParseJob, then CompleteJob (validate.h), with the faults of both; a field that did not parse is
// not reported twice.
[[nodiscard]] Faults LoadJob(std::string_view text, const std::vector<std::string>& overrides,
                             const ValidateContext& context, megatrain::v1::JobSpec* job);

// LoadJob of a file; one that cannot be read is a fault whose path is the file's.
[[nodiscard]] Faults LoadJobFile(const std::string& path, const std::vector<std::string>& overrides,
                                 const ValidateContext& context, megatrain::v1::JobSpec* job);

}  // namespace mt::spec
