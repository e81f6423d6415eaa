// A text without a slash that is no path here is a job's name.
#include "client/commands/checkpoint_place.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "client/commands/run_job.h"
#include "common/base/files.h"
#include "megatrain/v1/api.pb.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/label.h"

namespace mt::client {
namespace {

StatusOr<v1::Job> FetchJob(const JobText& text, const GlobalOptions& options) {
  const auto api = ConnectApi(options);
  if (!api.ok()) {
    return base::Error(api.status().code(), "no path is named {}, and no job can be looked up: {}",
                       text.job, base::Message(api.status()));
  }
  return FindJobWithRun(**api, text.job, options);
}

// Where rank 0 runs or ran last.
std::string NodeOf(const v1::Job& job) {
  return job.ranks().empty() ? "the node of its rank 0" : "node " + job.ranks(0).node();
}

Status CheckIsHere(const v1::Job& job) {
  if (job.checkpoint_path().empty()) {
    return base::NotFound("job '{}' has no checkpoint directory{}", job.name(),
                          job.spec().checkpoint().directory() == "none"
                              ? ": checkpoint.directory is none"
                              : " yet: its ranks have not been ready");
  }
  if (base::Exists(job.checkpoint_path())) return OkStatus();
  return base::NotFound(
      "job '{}' saves to {} on {}, which this machine does not have: mount the folder here, or run "
      "the command there with the path in place of the job, as in: mtctl checkpoint verify {}",
      job.name(), job.checkpoint_path(), NodeOf(job), job.checkpoint_path());
}

StatusOr<checkpoint::CheckpointId> IdOf(const v1::Job& job, const std::string& what) {
  const std::string& directory = job.checkpoint_path();
  if (what.empty()) {
    ASSIGN_OR_RETURN(const std::optional<checkpoint::CheckpointId> newest,
                     checkpoint::FindNewest(directory));
    if (newest) return *newest;
    return base::NotFound("job '{}' has no complete checkpoint in {}", job.name(), directory);
  }
  const bool digits = std::ranges::all_of(what, [](char c) { return c >= '0' && c <= '9'; });
  if (digits || what.starts_with("step-")) return checkpoint::FindByName(directory, what);
  return checkpoint::FindByTag(directory, what);
}

// Empty: it may still train.
std::string UidWhereEnded(const v1::Job& job) {
  const v1::JobState state = job.state();
  const bool ended = state == v1::SUCCEEDED || state == v1::FAILED || state == v1::CANCELLED;
  return ended ? job.uid() : "";
}

}  // namespace

std::optional<JobText> JobNamedBy(const std::string& text) {
  std::error_code error;
  if (text.empty() || text.find('/') != std::string::npos || text.starts_with('.') ||
      std::filesystem::exists(text, error)) {
    return std::nullopt;
  }
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return JobText{.job = text, .what = ""};
  return JobText{.job = text.substr(0, colon), .what = text.substr(colon + 1)};
}

StatusOr<checkpoint::Place> ResolvePlace(const std::string& text, const GlobalOptions& options) {
  const std::optional<JobText> named = JobNamedBy(text);
  if (!named) return checkpoint::FindPlace(text);
  ASSIGN_OR_RETURN(const v1::Job job, FetchJob(*named, options));
  RETURN_IF_ERROR(CheckIsHere(job));
  checkpoint::Place place{.directory = job.checkpoint_path(), .id = std::nullopt};
  if (!named->what.empty()) {
    ASSIGN_OR_RETURN(place.id, IdOf(job, named->what));
  }
  return place;
}

StatusOr<NamedDirectory> ResolveDirectory(const std::string& text, const GlobalOptions& options) {
  const std::optional<JobText> named = JobNamedBy(text);
  if (!named) {
    ASSIGN_OR_RETURN(const checkpoint::Place place, checkpoint::FindPlace(text));
    if (!place.id) return NamedDirectory{.directory = place.directory, .ended_job_uid = ""};
  } else if (named->what.empty()) {
    ASSIGN_OR_RETURN(const v1::Job job, FetchJob(*named, options));
    RETURN_IF_ERROR(CheckIsHere(job));
    return NamedDirectory{.directory = job.checkpoint_path(), .ended_job_uid = UidWhereEnded(job)};
  }
  return base::InvalidArgument(
      "{} is one checkpoint: give the directory, or the job alone, in which the run has its "
      "checkpoints",
      text);
}

StatusOr<NamedCheckpoint> ResolveCheckpoint(const std::string& text, const GlobalOptions& options) {
  NamedCheckpoint found;
  const std::optional<JobText> named = JobNamedBy(text);
  if (!named) {
    ASSIGN_OR_RETURN(found.place, checkpoint::FindCheckpoint(text));
    return found;
  }
  ASSIGN_OR_RETURN(const v1::Job job, FetchJob(*named, options));
  RETURN_IF_ERROR(CheckIsHere(job));
  ASSIGN_OR_RETURN(const checkpoint::CheckpointId id, IdOf(job, named->what));
  found.place = {.directory = job.checkpoint_path(),
                 .id = id,
                 .folder = base::JoinPath(job.checkpoint_path(), checkpoint::FolderName(id))};
  found.ended_job_uid = UidWhereEnded(job);
  return found;
}

}  // namespace mt::client
