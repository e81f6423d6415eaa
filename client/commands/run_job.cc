// The coordinator chooses; what it was asked for without a choice tells whether it has chosen.
#include "client/commands/run_job.h"

#include <cstdio>
#include <string>

#include "client/output/format.h"
#include "common/base/plain_text.h"
#include "megatrain/v1/api.pb.h"

namespace mt::client {
namespace {

// As daemon/api/job_ref.cc has it: ranks of earlier versions told no run.
bool HasRun(const v1::Job& job) {
  return !job.run().id().empty() || !job.checkpoint_path().empty() || job.has_last_step();
}

// A list that is shown again and again says it once.
void SayOlder(const v1::Job& newest, const v1::Job& older) {
  static std::string said;
  if (said == older.uid()) return;
  said = older.uid();
  std::fprintf(
      stderr, "%s\n",
      base::CleanLine(
          fmt::format("mtctl: the newest job {} ({}, {}) has no run of its own: this is "
                      "job {} of that name",
                      newest.name(), newest.uid(), v1::JobState_Name(newest.state()), older.uid()))
          .c_str());
}

}  // namespace

StatusOr<v1::Job> FindJobWithRun(const Api& api, const std::string& job,
                                 const GlobalOptions& options) {
  v1::GetJobRequest request = MakeJobRequest(options, job);
  ASSIGN_OR_RETURN(v1::Job newest, api.GetJob(request));
  if (HasRun(newest) || !request.job().uid().empty()) return newest;
  request.mutable_job()->set_with_run(true);
  ASSIGN_OR_RETURN(v1::Job older, api.GetJob(request));
  if (older.uid() != newest.uid()) SayOlder(newest, older);
  return older;
}

}  // namespace mt::client
