// The job whose run a name means: a name is the newest job's, but a submission that failed at once
// has no run and made nothing.
#pragma once

#include <string>

#include "client/session/session.h"
#include "common/base/status.h"

namespace mt::client {

// The job that is named, or, where that has no run, the newest of its name that has one: then a
// line on stderr says so, once in this process. Blocks; errors as Api::GetJob.
StatusOr<v1::Job> FindJobWithRun(const Api& api, const std::string& job,
                                 const GlobalOptions& options);

}  // namespace mt::client
