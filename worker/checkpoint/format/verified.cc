// A mark that cannot be read tells no time.
#include "worker/checkpoint/format/verified.h"

#include <cerrno>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "worker/checkpoint/format/json_text.h"

namespace mt::checkpoint {

bool IsVerified(const std::string& folder) {
  struct stat info {};
  const std::string path = base::JoinPath(folder, kVerifiedName);
  return ::lstat(path.c_str(), &info) == 0 || errno != ENOENT;
}

std::string VerifiedAt(const std::string& folder) {
  const auto text = base::ReadFile(base::JoinPath(folder, kVerifiedName));
  if (!text.ok()) return "";
  const nlohmann::json in = ParseJson(*text);
  const bool tells = in.is_object() && in.contains("made") && in["made"].is_string();
  return tells ? in["made"].get<std::string>() : "";
}

Status WriteVerified(const std::string& folder) {
  const nlohmann::json out = {
      {"format", "megatrain-verified"},
      {"version", kVerifiedVersion},
      {"made", base::FormatUtc(base::ToUnixMicros(base::Clock::Real()->WallNow()))}};
  return base::WriteFileAtomic(base::JoinPath(folder, kVerifiedName), out.dump(1) + "\n");
}

Status RemoveVerified(const std::string& folder) {
  const std::string path = base::JoinPath(folder, kVerifiedName);
  if (::unlink(path.c_str()) == 0) return base::SyncDir(folder);
  return errno == ENOENT ? OkStatus() : base::ErrnoError(errno, "remove " + path);
}

}  // namespace mt::checkpoint
