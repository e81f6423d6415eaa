#include "worker/agent/job_names.h"

#include <algorithm>

namespace mt::agent {
namespace {

bool IsName(const std::string& text, size_t longest, bool upper) {
  return !text.empty() && text.size() <= longest &&
         std::all_of(text.begin(), text.end(), [upper](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
                  (upper && c >= 'A' && c <= 'Z');
         });
}

}  // namespace

Status CheckJobNames(const std::string& job_name, const std::string& job_uid) {
  if (!IsName(job_name, 63, false)) return base::InvalidArgument("bad job name \"{}\"", job_name);
  if (!IsName(job_uid, 64, true)) return base::InvalidArgument("bad job uid \"{}\"", job_uid);
  return OkStatus();
}

std::string RankLogFile(const std::string& log_root, const std::string& job_name,
                        const std::string& job_uid, int rank) {
  return fmt::format("{}/{}-{}/rank-{:05}.log", log_root, job_name, job_uid.substr(0, 8), rank);
}

std::string RankFolder(const std::string& parent, const std::string& job_uid, int64_t epoch,
                       int rank) {
  return fmt::format("{}/{}-e{:04}-r{:05}", parent, job_uid, epoch, rank);
}

}  // namespace mt::agent
