// Conditions of a job: standing facts beside its state ("Saving", "NodeUnreachable"). Pure
// functions on a job that the caller owns.
#pragma once

#include <cstdint>
#include <string_view>

namespace megatrain::v1 {
class Job;
}

namespace mt::daemon {

namespace v1 = megatrain::v1;

// Sets the condition, or its message; the time stays that of the first.
void SetCondition(v1::Job* job, std::string_view type, std::string_view message, int64_t now_us);
// True where the condition was there.
bool ClearCondition(v1::Job* job, std::string_view type);
bool HasCondition(const v1::Job& job, std::string_view type);

}  // namespace mt::daemon
