// Folder names are UID-eEPOCH and rank-RRRRR; numbers may have more digits than are padded to.
#include "worker/node/ranks/job_names.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace mt::node {
namespace {

bool IsName(const std::string& text, size_t longest, bool upper) {
  return !text.empty() && text.size() <= longest &&
         std::all_of(text.begin(), text.end(), [upper](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
                  (upper && c >= 'A' && c <= 'Z');
         });
}

// Parses a non-negative number that fills the whole text.
template <class Number>
std::optional<Number> ParseDigits(std::string_view text) {
  Number value = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped != end || value < 0) return std::nullopt;
  return value;
}

}  // namespace

Status CheckJobNames(const std::string& job_name, const std::string& job_uid) {
  if (!IsName(job_name, 63, false)) return base::InvalidArgument("bad job name \"{}\"", job_name);
  if (!IsName(job_uid, 64, true)) return base::InvalidArgument("bad job uid \"{}\"", job_uid);
  return OkStatus();
}

std::string LogDirectory(const std::string& log_root, const std::string& job_name,
                         const std::string& job_uid) {
  return fmt::format("{}/{}-{}", log_root, job_name, job_uid.substr(0, 8));
}

StatusOr<std::string> TraceFile(const std::string& log_root, const std::string& job_name,
                                const std::string& job_uid, const std::string& trace) {
  if (trace != fmt::format("trace-{}.pb", job_uid))
    return base::InvalidArgument("job {} has no trace \"{}\"", job_uid, trace);
  return fmt::format("{}/{}", LogDirectory(log_root, job_name, job_uid), trace);
}

std::string OutputFile(const std::string& log_root, const std::string& job_name,
                       const std::string& job_uid) {
  return fmt::format("{}/output-{}", LogDirectory(log_root, job_name, job_uid), job_uid);
}

std::string RankLogFile(const std::string& log_root, const std::string& job_name,
                        const std::string& job_uid, int rank) {
  return fmt::format("{}/rank-{:05}.log", LogDirectory(log_root, job_name, job_uid), rank);
}

std::string AllocationFolder(const std::string& parent, const std::string& job_uid, int64_t epoch) {
  return fmt::format("{}/{}-e{:04}", parent, job_uid, epoch);
}

std::string RankFolder(const std::string& parent, const std::string& job_uid, int64_t epoch,
                       int rank) {
  return fmt::format("{}/rank-{:05}", AllocationFolder(parent, job_uid, epoch), rank);
}

std::optional<AllocationName> ParseAllocationName(const std::string& name) {
  const size_t mark = name.rfind("-e");
  if (mark == std::string::npos) return std::nullopt;
  const auto epoch = ParseDigits<int64_t>(std::string_view(name).substr(mark + 2));
  AllocationName found{.job_uid = name.substr(0, mark), .epoch = epoch.value_or(0)};
  if (!epoch || !IsName(found.job_uid, 64, true)) return std::nullopt;
  return found;
}

std::optional<int> ParseRankName(const std::string& name) {
  constexpr std::string_view kPrefix = "rank-";
  if (name.rfind(kPrefix, 0) != 0) return std::nullopt;
  return ParseDigits<int>(std::string_view(name).substr(kPrefix.size()));
}

}  // namespace mt::node
