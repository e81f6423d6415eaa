// Folders of checkpoints themselves are not walked: a fence lies beside them.
#include "client/commands/purge.h"

#include <filesystem>
#include <system_error>

#include "common/base/files.h"
#include "common/base/log.h"
#include "megatrain/v1/api.pb.h"
#include "worker/checkpoint/format/directory.h"
#include "worker/checkpoint/format/fence.h"

namespace mt::client {
namespace {

// OK also where the directory is not held by one of these jobs.
Status Release(const std::string& directory, const std::set<std::string>& uids, int64_t* released) {
  ASSIGN_OR_RETURN(const auto found, checkpoint::ReadFence(directory));
  checkpoint::Fence fence = found.value_or(checkpoint::Fence());
  if (!uids.contains(fence.job_uid)) return OkStatus();
  fence.job_uid.clear();
  fence.epoch = 0;
  RETURN_IF_ERROR(base::WriteFileAtomic(base::JoinPath(directory, checkpoint::kFenceName),
                                        checkpoint::ToJson(fence)));
  ++*released;
  return OkStatus();
}

}  // namespace

StatusOr<std::set<std::string>> AllJobUids(const Api& api) {
  std::set<std::string> uids;
  v1::ListJobsRequest request;
  do {
    ASSIGN_OR_RETURN(const v1::ListJobsResponse page, api.ListJobs(request));
    for (const v1::Job& job : page.jobs()) uids.insert(job.uid());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return uids;
}

int64_t ReleaseFences(const std::string& checkpoint_root, const std::set<std::string>& uids) {
  namespace fs = std::filesystem;
  int64_t released = 0;
  std::error_code error;
  auto at = fs::recursive_directory_iterator(checkpoint_root, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (checkpoint::ParseFolderName(name).has_value()) at.disable_recursion_pending();
    if (name != checkpoint::kFenceName) continue;
    const std::string directory = at->path().parent_path().string();
    const Status status = Release(directory, uids, &released);
    if (!status.ok()) {
      log::Warn("a checkpoint directory keeps the name of a job that is forgotten",
                {{"directory", directory}, {"why", base::Message(status)}});
    }
  }
  return released;
}

}  // namespace mt::client
